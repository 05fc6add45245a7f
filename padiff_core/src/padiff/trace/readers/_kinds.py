"""Know the kinds of modules of which a dump tells no more than the class's bare name."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from importlib import import_module

from padiff.kinds import Rule, Unit
from padiff.plugins import adapters
from padiff.trace._records import Call


class Kinds:
    """The rules of a framework's own classes, as its adapter has them; the framework itself is not imported.

    A class of the user's own may have such a name too: so a rule is believed of an innermost module alone, and where
    it holds a parameter that the rule speaks of.
    """

    def __init__(self, framework: str) -> None:
        self._rules: dict[str, Rule | None] = {}
        for qualified, rule in _table(framework).items():
            name = qualified.rpartition(".")[2]
            self._rules[name] = rule if self._rules.get(name, rule) == rule else None

    def of(self, call: Call, parameters: Collection[str]) -> tuple[str | None, Mapping[str, Unit]]:
        """Return the kind of a call's module, and the units of its parameters."""
        rule = self._rules.get(call.module.class_name) if call.leaf and not call.module.operation else None
        if rule is None or callable(rule.units):
            return None, {}
        held = {f"{call.path}.{part.parameter}" for unit in rule.units.values() for part in unit.roles.values()}
        return (rule.kind, rule.units) if not held or not held.isdisjoint(parameters) else (None, {})


def _table(framework: str) -> Mapping[str, Rule]:
    """Return the rules of an adapter by qualified class names; none where it is not installed, or tells none."""
    info = next((info for info in adapters() if info.name == framework), None)
    module, _, name = ("" if info is None else info.kinds).partition(":")
    found: Mapping[str, Rule] = getattr(import_module(module), name) if module else {}
    return found
