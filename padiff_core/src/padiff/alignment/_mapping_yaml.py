"""Find what the rules of a mapping file say of two models: which module, or parameter, is which.

A left name is followed step by step from the model itself. At each module the rules of its class are asked, the longest
name first; what no rule speaks of keeps its name. A module that is in no description, as a container that a dump of
calls lacks, has its own name for a class.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

import attrs

from padiff.alignment._mapping_file import TOP, MappingFile, Rule
from padiff.alignment._resolved import Group, MappedParameter, Resolved
from padiff.errors import MappingError, did_you_mean
from padiff.paths import below, downwards, joined, last
from padiff.report import Note
from padiff.trace import Description


def resolved_file(file: MappingFile, reference: Description, candidate: Description) -> Resolved:
    """Return what a mapping file says of the reference (left) and the candidate (right).

    A file that says nothing of them so, and something the other way round, is read the other way round. Raises
    `MappingError` for a rule that leads to what the right does not have. Rules that were never asked for come as notes.
    """
    there = _Follower(file, Names(reference), Names(candidate))
    if file.rules and not there.used:
        back = _Follower(file, Names(candidate), Names(reference))
        if back.used:
            found = back.resolved().inverted
            return attrs.evolve(found, notes=(Note("mapping_inverted", {"file": file.name}), *found.notes))
    return there.resolved()


Rules = Mapping[str, Mapping[str, Sequence[Rule]]]


def by_scope(rules: Iterable[Rule]) -> Rules:
    """Return the rules by class and first step, the longest first."""
    found: dict[str, dict[str, list[Rule]]] = {}
    for rule in sorted(rules, key=lambda rule: -len(rule.key)):
        found.setdefault(rule.scope, {}).setdefault(rule.key[0], []).append(rule)
    return found


class Names:
    """All paths of a model: of modules, parameters, and what lies between."""

    def __init__(self, about: Description) -> None:
        self.modules = about.modules
        self.parameters = dict.fromkeys(path for parameter in about.parameters.values() for path in parameter.paths)
        self.classes = {one.module.class_name.rpartition(".")[2] for one in about.modules.values()}
        self.paths = dict.fromkeys(part for path in (*self.modules, *self.parameters) for part in downwards(path))

    def scopes(self, path: str) -> tuple[str, ...]:
        """Return by which sections the children of a module are known."""
        module = self.modules.get(path)
        own = last(path)
        if module is None:
            return (own,)
        name = module.module.class_name.rpartition(".")[2]
        if not path:
            return (TOP, name)
        return (name,) if own in self.classes else (name, own)

    def below(self, path: str, depth: int) -> Iterator[str]:
        """Yield the names, relative to a path, of what is up to so many steps below it."""
        names = (below(other, path) for other in self.paths)
        return (name for name in names if name and name.count(".") < depth)


def follow(rules: Rules, names: Names, path: str) -> tuple[str | None, Rule | None]:
    """Return a left path's name on the right, and the rule of its last step; None where that is not one."""
    steps = path.split(".")
    at, left, right = 0, "", ""
    rule: Rule | None = None
    while at < len(steps):
        if rule is not None and len(rule.to) > 1:
            return None, None
        rule = next((one for one in _asked(rules, names, left, steps[at]) if _is_at(one, steps, at)), None)
        taken = 1 if rule is None else len(rule.key)
        right = joined(right, steps[at] if rule is None else rule.to[0])
        at += taken
        left = ".".join(steps[:at])
    return right, rule


def _asked(rules: Rules, names: Names, left: str, step: str) -> Iterator[Rule]:
    for scope in names.scopes(left):
        yield from rules.get(scope, {}).get(step, ())


def _is_at(rule: Rule, steps: Sequence[str], at: int) -> bool:
    return tuple(steps[at : at + len(rule.key)]) == rule.key


class _Follower:
    """Follow all names of the left, and know what each rule did."""

    def __init__(self, file: MappingFile, left: Names, right: Names) -> None:
        self._file, self._left, self._right = file, left, right
        rules = by_scope(file.rules)
        self._found = {path: follow(rules, left, path) for path in left.paths}
        self.used: dict[Rule, list[str]] = defaultdict(list)
        """Rule -> the left paths that it speaks of."""
        self._parents: dict[str, str] = {}
        """Left path that a rule speaks of -> the right path that its names are below."""
        for path, (to, rule) in self._found.items():
            if rule is not None and to is not None:
                self.used[rule].append(path)
                self._parents[path] = to.removesuffix(rule.to[0]).removesuffix(".")

    def resolved(self) -> Resolved:
        """Return what the file says, left to right."""
        called = {"": ""} if "" in self._left.modules and "" in self._right.modules else {}
        named: dict[str, str] = {}
        parameters: dict[str, MappedParameter] = {}
        several: dict[tuple[str, ...], tuple[list[str], Rule]] = {}
        idle = {rule for rule in self._file.rules if not self._leads_somewhere(rule)}
        for path, (to, rule) in self._found.items():
            if to is None:
                continue
            if rule is not None and rule not in idle:
                targets = self._targets(path, rule)
                if path in self._left.parameters and targets:
                    parameters[path] = MappedParameter(targets[0], rule.layout, self._file.place(rule))
                elif path in self._left.modules and all(target in self._right.modules for target in targets):
                    several.setdefault(targets, ([], rule))[0].append(path)
            elif rule is None and path in self._left.modules and to in self._right.modules:
                called[path] = to
        groups = []
        for targets, (paths, rule) in several.items():
            if len(paths) == len(targets) == 1:
                named[paths[0]] = targets[0]
            elif targets:
                groups.append(Group(tuple(sorted(paths, key=self._place)), targets, rule.groups))
        taken = {*named.values(), *(path for group in groups for path in group.candidate)}
        # A name that a rule gives away is no longer that of its namesake.
        called = {a: b for a, b in called.items() if b not in taken} | named
        return Resolved(
            named=named, groups=tuple(groups), parameters=parameters, notes=tuple(self._notes(idle)), called=called
        )

    def _place(self, path: str) -> int:
        """Return where a rule that speaks of a path stands: packed members are given in order."""
        rule = self._found[path][1]
        return 0 if rule is None else rule.line

    def _targets(self, path: str, rule: Rule) -> tuple[str, ...]:
        """Return the right paths that a rule leads to from a left path, as far as they are there."""
        found = tuple(joined(self._parents[path], name) for name in rule.to)
        known = self._right.parameters if path in self._left.parameters else self._right.paths
        return found if all(target in known for target in found) else ()

    def _leads_somewhere(self, rule: Rule) -> bool:
        """Return whether a rule was used and leads to what is there; raise `MappingError` where it cannot be right."""
        lost: list[tuple[str, str, str]] = []
        for path in self.used.get(rule, ()):
            parent = self._parents[path]
            missing = [name for name in rule.to if joined(parent, name) not in self._right.paths]
            if not missing:
                return True
            if not parent or parent in self._right.paths:
                lost.append((path, parent, missing[0]))
        if lost:
            path, parent, name = lost[0]
            near = did_you_mean(name, self._right.below(parent, name.count(".") + 2))
            there = sorted(self._right.below(parent, 1))
            hint = near or f"there are {', '.join(map(repr, there[:6]))}{' and others' if len(there) > 6 else ''}."
            msg = (
                f"{self._file.place(rule)}: {'.'.join(rule.key)!r} is mapped to {name!r} on the right, and "
                f"{repr(parent) if parent else 'the model'} has no such child (for {path!r} on the left).\nHint: {hint}"
            )
            raise MappingError(msg)
        return False

    def _notes(self, idle: set[Rule]) -> Iterator[Note]:
        for rule in self._file.rules:
            if rule in idle:
                yield Note(
                    "mapping_rule_unused",
                    {"place": self._file.place(rule), "rule": rule.text, "why": self._why_unused(rule)},
                )

    def _why_unused(self, rule: Rule) -> str:
        if rule in self.used:
            return f"the right has nothing that is the parent of {self.used[rule][0]!r}"
        parents = [path for path in {"", *self._left.paths} if rule.scope in self._left.scopes(path)]
        key = ".".join(rule.key)
        if not parents:
            near = did_you_mean(rule.scope, {TOP, *self._left.classes})
            return f"the left has no {rule.scope}{f'; {near}' if near else ''}"
        below = {name for path in parents for name in self._left.below(path, len(rule.key) + 1)}
        if key in below:
            return "a longer name takes precedence everywhere"
        near = did_you_mean(key, below)
        return f"no {rule.scope} of the left has a {key!r}{f'; {near}' if near else ''}"
