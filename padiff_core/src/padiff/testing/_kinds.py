"""Specify the table: every class is of a known kind, and its settings and parameters can be read."""

from __future__ import annotations

import importlib
from typing import Any, ClassVar

import numpy as np
import pytest

from padiff.kinds import CATALOGUE, Rule
from padiff.plugins import principal
from padiff.testing import _models as models
from padiff.testing._harness import Harness, needs, randoms


class KindTests(Harness):
    """Speak the catalogue's language, class by class."""

    feature: ClassVar[str] = "table of kinds"
    _examples: ClassVar[list[Any]]

    def ranges(self) -> dict[str, list[Any]]:
        """Run over the table's entries, the framework's own classes among them, and the examples."""
        own = f"{principal(self.info)}."
        return {
            **super().ranges(),
            "entry": sorted(self._rules()),
            "own_class": sorted(name for name in self.adapter.table if name.startswith(own)),
            "example": self._given(),
        }

    @classmethod
    def _rules(cls) -> dict[str, Rule]:
        """Return every rule of the adapter, those of habits by what they look for."""
        return {**cls.adapter.table, **{f"habit {habit.name}": habit.rule for habit in cls.adapter.habits}}

    @classmethod
    def _given(cls) -> list[Any]:
        """Return the examples, made once."""
        if "_examples" not in cls.__dict__:
            cls._examples = list(cls().examples())
        return cls._examples

    def test_the_table_is_not_empty(self) -> None:
        """An adapter knows at least its framework's linear layer; a subclass of a class in the table is of its kind."""
        native = self.linear(4, 3)
        rule = self.adapter.rule(native)
        assert rule is not None
        assert rule.kind == "linear", f"Adapter.table has no 'linear' for {type(native).__mro__}"
        heir = type("Heir", (type(native),), {})
        assert any(f"{cls.__module__}.{cls.__qualname__}" in self.adapter.table for cls in heir.__mro__), (
            "the table's keys are 'module.qualname' of a class"
        )

    def test_an_entry_speaks_the_catalogues_language(self, entry: str) -> None:
        """Kind, roles and settings of a rule are words of the catalogue."""
        rule = self._rules()[entry]
        assert rule.kind in CATALOGUE, f"{entry}: no kind {rule.kind!r}; see padiff.CATALOGUE"
        unknown = set(rule.settings) - set(CATALOGUE[rule.kind].settings)
        assert not unknown, f"{entry}: {rule.kind} has no setting {sorted(unknown)}"
        for name, unit in {}.items() if callable(rule.units) else rule.units.items():
            assert unit.kind is None or unit.kind in CATALOGUE, f"{entry}: unit {name!r} is of no known kind"
            unknown = set() if unit.kind is None else set(unit.roles) - set(CATALOGUE[unit.kind].roles)
            assert not unknown, f"{entry}: {unit.kind} has no role {sorted(unknown)}"

    def test_a_class_of_the_table_is_there_and_can_be_read(self, own_class: str) -> None:
        """The framework has the class, and an example of it (given, or made of small numbers) can be described."""
        if own_class in self.later and self.is_older(self.later[own_class]):
            return
        cls = _found(own_class)
        if own_class in self.unmakeable:
            assert _made(cls) is None, f"{own_class} can be made here: take it out of unmakeable"
            return
        native = next((one for one in self._given() if type(one) is cls), None) or _made(cls)
        assert native is not None, f"no example of {own_class}: let examples() give one"
        self.check(native)

    def test_an_example_can_be_read(self, example: Any) -> None:
        """Every setting of an example has a plain value, and every parameter of its own has a role."""
        self.check(example)

    def check(self, native: Any) -> None:
        """Assert that a module's settings and parts can be read and written."""
        rule, model = self.adapter.rule(native), self.wrap(native)
        name = type(native).__qualname__
        assert rule is not None, f"the table has no rule for {name}"
        for setting, read in rule.settings.items():
            try:
                hash(read.value(native))
            except Exception as error:
                pytest.fail(f"{name}: the setting {setting!r} cannot be read as a plain value: {error!r}")
        parameters = {path: parameter for parameter in model.parameters().values() for path in parameter.paths}
        covered = set()
        for unit_name, unit in rule.units_of(native).items():
            known = None if unit.kind is None else CATALOGUE[unit.kind].roles
            for role, part in unit.roles.items():
                assert known is None or role in known, f"{name}: {unit.kind} has no role {role!r}"
                if part.parameter not in parameters:
                    continue  # no bias
                covered.add(parameters[part.parameter].path)
                values = np.array(parameters[part.parameter].view())
                canonical = np.array(part.read(values))
                twin = values.copy()
                part.write(twin, canonical)
                where = f"{name}: unit {unit_name!r}, role {role!r}, parameter {part.parameter!r}"
                assert twin.tobytes() == values.tobytes(), f"{where}: written back, the values are others"
        own = {p.path for p in parameters.values() if "." not in p.path and "float" in p.dtype}
        assert own <= covered, f"{name}: the rule gives no role to {sorted(own - covered)}"

    def test_a_linear_layers_roles_have_canonical_shapes(self) -> None:
        """The weight reads as (out, in), the bias as (out,)."""
        model = self.wrap(self.linear(4, 3))
        assert self.canonical(model, "", "weight").shape == (3, 4)
        assert self.canonical(model, "", "bias").shape == (3,)

    @needs("buffers")
    def test_a_batch_norm_reads_as_the_catalogue_says(self) -> None:
        """Given other values, a batch norm computes by the formula in evaluation, with roles and eps from the table."""
        native = self.module(models.one, first=self.batch_norm(3))
        if "modes" in self.adapter.capabilities:
            self.set_training(native, False)
        model, x = self.wrap(native), randoms(5, 3)
        values = {role: np.abs(randoms(3, seed=i)) + 0.5 for i, role in enumerate(CATALOGUE["batch_norm"].roles)}
        for role, array in values.items():
            self.held(model, "first", role).parameter.assign(array)
        rule = model.modules()["first"].rule
        assert rule is not None
        eps = rule.settings["eps"].value(native.first)
        scaled = (x - values["running_mean"]) / np.sqrt(values["running_var"] + eps)
        expected = scaled * values["weight"] + values["bias"]
        np.testing.assert_allclose(self.values(model.run((self.native(x),), {})), expected, rtol=1e-4, atol=1e-5)

    @needs("randomness")
    def test_a_dropout_is_known_as_random(self) -> None:
        """A dropout is of a stochastic kind, and its probability can be read."""
        native = self.dropout(0.25)
        rule = self.adapter.rule(native)
        assert rule is not None
        assert rule.kind == "dropout"
        assert rule.settings["p"].value(native) == 0.25

    @needs("randomness")
    def test_the_generators_tell_who_takes_random_numbers(self) -> None:
        """Their state stays as it is where nothing is taken, and is another one behind a dropout; or is not seen."""
        x = np.ones((4, 3), np.float32)
        with self.adapter.seeded(0):
            before = self.adapter.random_state()
            for native, taken in ((self.linear(3, 3), False), (self.dropout(0.5), True)):
                model = self.wrap(native)
                state = self.adapter.random_state()
                assert state == self.adapter.random_state()
                model.run((self.native(x),), {})
                assert before is None or (state != self.adapter.random_state()) is taken


def _found(entry: str) -> type:
    """Return the class of that qualified name; fail where the framework has none."""
    parts = entry.split(".")
    for cut in range(len(parts) - 1, 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:cut]))
        except ImportError:
            continue
        for part in parts[cut:]:
            found = getattr(found, part, None)
        if isinstance(found, type):
            return found
        break
    pytest.fail(f"the table names {entry}, which the installed framework does not have")


_ARGUMENTS = ((), (2,), (4, 2), (4, 2, 2), (4, 2, 1, 1))


def _made(cls: type) -> Any | None:
    """Return an instance made without arguments or of small numbers, or None."""
    for arguments in _ARGUMENTS:
        try:
            return cls(*arguments)
        except Exception:  # it takes others
            continue
    return None
