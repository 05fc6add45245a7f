"""Spoil the adapter of docs/adapters.md in many ways: the suite that specifies the interface catches each."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs
import numpy as np
import pytest

import padiff
from padiff import Part, Rule, Unit
from padiff.testing import AdapterTests, _models, assert_aligned
from padiff.testing.conformance import read

from .pages import ROOT, blocks
from .site import imported, write

PAGE = ROOT / "docs" / "adapters.md"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Write the files of the page, the last version of each."""
    folder = tmp_path_factory.mktemp("acme")
    with imported(folder):
        for block in blocks(PAGE.read_text(encoding="utf-8")):
            if block.file is not None:
                write(block, folder)
        yield folder


@pytest.fixture
def acme(site: Path) -> Any:
    """Return the framework, the rooms of its adapter, and its test class."""
    rooms = {room: import_module(f"padiff_acme.{room}") for room in ("values", "model", "adapter", "backward")}
    namespace: dict[str, Any] = {"__name__": "test_acme"}
    exec(site.joinpath("test_acme.py").read_text(encoding="utf-8"), namespace)
    return SimpleNamespace(acme=import_module("acme"), suite=namespace["TestAcme"], **rooms)


@attrs.frozen
class Fault:
    """Replace one member of the adapter; say which test of the suite must fail, and what it is given."""

    what: str
    cls: str
    name: str
    make: Callable[[Any], Any]
    """Takes what the `acme` fixture gives."""
    test: str
    given: tuple[Any, ...] = ()


def member(function: Any) -> Callable[[Any], Any]:
    """Make a member that needs nothing of Acme."""
    return lambda _: function


def forgetful(self: Any) -> Any:
    """Put back nothing."""

    @contextmanager
    def context() -> Iterator[None]:
        yield

    return context()


def forgetful_after_errors(acme: Any) -> Any:
    """Put back only after success."""

    @contextmanager
    def preserved(self: Any) -> Iterator[None]:
        before = {name: np.array(p.gradient()) for name, p in self.parameters().items()}
        yield
        for name, parameter in self.parameters().items():
            parameter.set_gradient(before[name])

    return preserved


def wrapping(acme: Any) -> Any:
    """Wrap what the model raises."""
    right = acme.backward.TapedModel.run

    def run(self: Any, *args: Any) -> Any:
        try:
            return right(self, *args)
        except Exception as error:
            msg = "the model failed"
            raise RuntimeError(msg) from error

    return run


def keeping(acme: Any) -> Any:
    """Keep old gradients."""

    def run(self: Any, args: Any, kwargs: Any, differentiate: Any = None) -> Any:
        output = self.native(*args, **kwargs)
        if differentiate is not None:
            acme.acme.backward([(tensor, gradient.data) for tensor, gradient in differentiate(output)])
        return output

    return run


def reporting(spoilt: str) -> Callable[[Any], Any]:
    """Make hooks that lose keywords, or what the listener answers."""

    def function(self: Any, listener: Any, module: Any) -> Any:
        def before(args: Any, kwargs: Any) -> Any:
            answer = listener.enter(module, args, {} if spoilt == "keywords" else kwargs)
            return None if spoilt == "arguments" else answer

        def after(args: Any, kwargs: Any, output: Any) -> Any:
            answer = listener.leave(module, args, kwargs, output)
            return None if spoilt == "output" else answer

        return before, after

    return member(function)


def keeps_hooks(acme: Any) -> Any:
    """Attach, and never detach."""
    right = acme.model.AcmeModel.attach

    def attach(self: Any, listener: Any) -> Any:
        right(self, listener)
        return padiff.Hook()

    return attach


def fresh_wrappers(acme: Any) -> Any:
    """Wrap every module anew each time."""
    right = acme.model.AcmeModel.modules

    def modules(self: Any) -> Any:
        self._wrapped = {}
        return right(self)

    return modules


def shared_twice(acme: Any) -> Any:
    """List a shared module under each of its paths."""

    def modules(self: Any) -> Any:
        wrap = acme.model.AcmeModule
        return {path: wrap(path, module, self.adapter.rule(module)) for path, module in self.walk(self.native)}

    return modules


def table(rule: Any) -> Callable[[Any], Any]:
    """Make a table with another rule for the dense layer."""
    return lambda acme: {**acme.adapter.AcmeAdapter.table, "acme.layers.Dense": rule}


def untransposed() -> Rule:
    return Rule("linear", {"": Unit("linear", {"weight": Part("kernel"), "bias": Part("bias")})})


def converted(acme: Any) -> Any:
    """Take every array as float32."""
    return lambda self, array, **_: acme.acme.Tensor(np.array(array, np.float32))


def sharing(acme: Any) -> Any:
    """Share the array's memory."""
    return lambda self, array, **_: acme.acme.Tensor(array)


def detached(acme: Any) -> Any:
    """Swap a value in, and cut the gradient off."""
    return lambda self, array: acme.acme.Tensor(acme.values.fitting(array, self.native.data))


def broadcasting(acme: Any) -> Any:
    """Swap in whatever broadcasts."""
    return lambda self, array: acme.acme.Tensor(np.broadcast_to(array, self.shape).astype(self.dtype))


def each_part(acme: Any) -> Any:
    """Keep hooks that are never closed."""
    right = acme.backward.TapedTensor.on_gradient

    def on_gradient(self: Any, callback: Any) -> Any:
        right(self, callback)
        return padiff.Hook()

    return on_gradient


def deaf(acme: Any) -> Any:
    """Report gradients, and replace none."""
    right = acme.backward.TapedTensor.on_gradient

    def on_gradient(self: Any, callback: Any) -> Any:
        def arrived(gradient: Any) -> None:
            callback(gradient)

        return right(self, arrived)

    return on_gradient


TENSOR, PARAMETER = "backward.TapedTensor", "backward.TapedParameter"
MODEL, ADAPTER = "backward.TapedModel", "backward.TapedAdapter"

FAULTS = [
    Fault(
        "numpy shares memory", TENSOR, "numpy", member(lambda self: self.native.data), "a_snapshot_is_the_readers_own"
    ),
    Fault("from_numpy shares memory", ADAPTER, "from_numpy", sharing, "a_tensor_made_of_an_array_does_not_share_it"),
    Fault(
        "dtypes are narrowed", ADAPTER, "from_numpy", converted, "every_dtype_crosses_bit_for_bit", ("float64", (2, 3))
    ),
    Fault(
        "dtypes are taken for others",
        ADAPTER,
        "from_numpy",
        converted,
        "other_dtypes_are_refused_by_name",
        ("bfloat16",),
    ),
    Fault(
        "a swap cuts the gradient",
        TENSOR,
        "swapped",
        detached,
        "a_swapped_value_computes_and_its_gradient_passes_through",
    ),
    Fault("a swap broadcasts", TENSOR, "swapped", broadcasting, "swapped_refuses_another_shape"),
    Fault("a gradient hook stays", TENSOR, "on_gradient", each_part, "a_closed_gradient_hook_is_silent"),
    Fault("gradients are not replaced", TENSOR, "on_gradient", deaf, "a_gradient_can_be_replaced"),
    Fault("arguments are not replaced", MODEL, "reporting", reporting("arguments"), "arguments_can_be_replaced"),
    Fault(
        "outputs are not replaced",
        MODEL,
        "reporting",
        reporting("output"),
        "outputs_can_be_replaced",
        (_models.OUTPUTS["dict"],),
    ),
    Fault("keywords are lost", MODEL, "reporting", reporting("keywords"), "keywords_arrive_as_keywords"),
    Fault("hooks stay", MODEL, "attach", keeps_hooks, "a_closed_hook_reports_nothing_and_leaves_nothing"),
    Fault("wrappers change", MODEL, "modules", fresh_wrappers, "modules_come_once_parents_first"),
    Fault("shared modules are two", MODEL, "modules", shared_twice, "a_module_under_two_names_is_one"),
    Fault("exceptions are wrapped", MODEL, "run", wrapping, "exceptions_of_the_model_come_out_unchanged"),
    Fault("gradients accumulate", MODEL, "run", keeping, "runs_do_not_accumulate"),
    Fault(
        "nothing is put back", MODEL, "preserved", member(forgetful), "preserved_puts_back_what_a_run_changes", (False,)
    ),
    Fault(
        "nothing is put back after an error",
        MODEL,
        "preserved",
        forgetful_after_errors,
        "preserved_puts_back_what_a_run_changes",
        (True,),
    ),
    Fault(
        "nothing is lifted",
        MODEL,
        "lifted",
        member(lambda self, dtype: forgetful(self)),
        "lifted_runs_in_float64_and_back_bit_for_bit",
        (False,),
    ),
    Fault(
        "a layout is wrong", ADAPTER, "table", table(untransposed()), "a_linear_layer_computes_what_its_parameters_say"
    ),
    Fault(
        "a role is unknown",
        ADAPTER,
        "table",
        table(Rule("linear", {"": Unit("linear", {"kernel": Part("kernel")})})),
        "an_entry_speaks_the_catalogues_language",
        ("acme.layers.Dense",),
    ),
    Fault(
        "a parameter has no role",
        ADAPTER,
        "table",
        table(Rule("linear", {"": Unit("linear", {"bias": Part("bias")})})),
        "a_class_of_the_table_is_there_and_can_be_read",
        ("acme.layers.Dense",),
    ),
    Fault(
        "a class is gone",
        ADAPTER,
        "table",
        lambda acme: {"acme.layers.Gone": untransposed()},
        "a_class_of_the_table_is_there_and_can_be_read",
        ("acme.layers.Gone",),
    ),
    Fault(
        "assigning broadcasts",
        PARAMETER,
        "assign",
        member(lambda self, array: np.copyto(self.native.data, array)),
        "assigning_never_broadcasts",
    ),
    Fault("the library is unknown", ADAPTER, "library", member(()), "the_frameworks_own_files_are_known"),
    Fault(
        "the version is missing", ADAPTER, "environment", member(lambda self: {}), "the_environment_names_the_version"
    ),
    Fault(
        "anything is a model",
        ADAPTER,
        "wrap",
        lambda acme: lambda self, model: acme.model.AcmeModel(model, self),
        "what_is_no_model_is_refused",
    ),
    Fault(
        "a capability is misspelt",
        ADAPTER,
        "capabilities",
        member(frozenset({"gradient"})),
        "capabilities_are_known_words_and_each_can_be_tested",
    ),
    Fault(
        "a capability cannot be tested",
        ADAPTER,
        "capabilities",
        member(frozenset({"buffers"})),
        "capabilities_are_known_words_and_each_can_be_tested",
    ),
    Fault(
        "seeding reaches nothing",
        ADAPTER,
        "seeded",
        member(lambda self, seed: forgetful(self)),
        "seeding_covers_python_and_numpy_and_is_undone",
    ),
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.what)
def test_a_wrong_adapter_is_caught(acme: Any, monkeypatch: pytest.MonkeyPatch, fault: Fault) -> None:
    """A test that passes on the right adapter fails on the wrong one."""
    test = getattr(acme.suite(), f"test_{fault.test}")
    given = fault.given
    if "gone" not in fault.what:
        test(*given)
    room, _, cls = fault.cls.partition(".")
    monkeypatch.setattr(getattr(getattr(acme, room), cls), fault.name, fault.make(acme))
    with pytest.raises((Exception, pytest.fail.Exception)):
        test(*given)


# What is collected ------------------------------------------------------------------------------------------


def test_what_is_not_offered_is_not_collected(acme: Any) -> None:
    """Tests of a capability are there where the adapter offers it; those of its refusal where it does not."""
    offered = {name for name in dir(acme.suite) if name.startswith("test_") and getattr(acme.suite, name) is not None}
    assert "test_gradients_of_parameters_are_right" in offered
    assert "test_without_in_place_there_is_no_memory_to_write_to" in offered
    assert "test_without_gradients_nothing_is_differentiable" not in offered
    assert "test_a_snapshot_outlives_changes" not in offered


def test_an_adapter_that_is_not_installed_is_named() -> None:
    """A test class of an adapter that no plugin announces cannot even be made."""
    with pytest.raises(LookupError, match=r"'nobody'(.|\n)*torch(.|\n)*Hint"):
        type("TestNobody", (AdapterTests,), {"name": "nobody"})


def test_an_author_may_write_a_test_anew(acme: Any) -> None:
    """A test that a subclass overrides is the subclass's, whatever the suite's own needs."""
    own = type("TestOwn", (acme.suite,), {"test_a_snapshot_outlives_changes": lambda self: None})
    assert own.test_a_snapshot_outlives_changes is not None


# The table --------------------------------------------------------------------------------------------------


def conformance(site: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run ``python -m padiff.testing`` as an adapter's author would, in the folder."""
    line = [sys.executable, "-m", "padiff.testing", "--into", "seen", *arguments]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")])}
    return subprocess.run(line, cwd=site, env=environment, capture_output=True, text=True, check=False)


def test_a_run_writes_what_it_saw(site: Path, tmp_path: Path) -> None:
    """The file and the table say what is offered; the check passes until either of them is changed."""
    folder = shutil.copytree(site, tmp_path / "site")
    done = conformance(folder, "test_acme.py")
    assert done.returncode == 0, done.stdout
    (seen,) = read(folder / "seen")
    assert (seen.adapter, seen.version) == ("acme", "1.2")
    assert (seen.features["detection"], seen.features["gradients"], seen.features["in-place"]) == ("yes", "yes", "no")
    assert "| gradients | " in folder.joinpath("seen.md").read_text()
    assert conformance(folder, "--check", "test_acme.py").returncode == 0
    attrs.evolve(seen, features={**seen.features, "in-place": "yes"}).write(folder / "seen")
    stale = conformance(folder, "--check", "test_acme.py")
    assert stale.returncode == 1
    assert "acme" in stale.stderr
    assert "Hint: python -m padiff.testing --into seen test_acme.py" in stale.stderr


def test_a_feature_that_fails_is_written_as_such(site: Path, tmp_path: Path) -> None:
    """The feature of a failing test says so, the others do not, and the exit status tells."""
    folder = shutil.copytree(site, tmp_path / "site")
    values = folder / "padiff_acme" / "values.py"
    values.write_text(values.read_text().replace("self.native.data.copy()", "self.native.data"))
    assert conformance(folder, "test_acme.py").returncode == 1
    (seen,) = read(folder / "seen")
    assert (seen.features["values"], seen.features["detection"]) == ("fails", "yes")


# Two models -------------------------------------------------------------------------------------------------


def test_assert_aligned_prints_the_report(acme: Any) -> None:
    """Models that part fail a test with the printed report; aligned ones give it back."""
    x = np.random.default_rng(0).standard_normal((4, 8), dtype=np.float32)
    right, wrong = acme.acme.Norm(8), acme.acme.Norm(8, epsilon=1e-3)
    assert assert_aligned(right, acme.acme.Norm(8), (x,)).aligned
    with pytest.raises(AssertionError, match=r"source 1 of 1(.|\n)*eps: 1e-05 in the reference, 0.001"):
        assert_aligned(right, wrong, {"x": x})


def test_only_the_suite_takes_pytest() -> None:
    """padiff, and what of padiff.testing is for tests of one's own, imports no pytest."""
    code = (
        "import sys, padiff, padiff.testing as t; t.assert_aligned, t.fault, t.Log; "
        "assert 'pytest' not in sys.modules; t.AdapterTests; assert 'pytest' in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
