"""Write the mapping file that says of two models what was found to belong together: the shortest that names need."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import attrs

from padiff.alignment._mapping_file import LAYOUTS, TOP, Rule
from padiff.alignment._mapping_yaml import Names, by_scope, follow
from padiff.paths import below, last, parent, upwards
from padiff.report import Matching
from padiff.trace import Description

_PACKED = "part of a packed parameter"
_PLAIN = re.compile(r"[A-Za-z_][\w.-]*")
_WORDS = {"y", "n", "yes", "no", "on", "off", "true", "false", "null"}
"""What YAML 1.1 does not read as a name."""


@attrs.frozen
class _Entry:
    """What one left path is on the right."""

    left: str
    right: tuple[str, ...]
    layout: bool | None = None


def written_mapping(matching: Matching, left: Description, right: Description) -> str:
    """Return the mapping file that leads every matched module of the left to its counterpart on the right.

    What equal names say, below what the file says, needs no line. Modules that found no counterpart have none. Of
    parameters those are named that padiff has no table for; of packed layers, which layers they pack.
    """
    modules = _modules(matching, left, right)
    named = [*modules.items(), *_containers(modules, left, right).items()]
    entries = [_Entry(a, (b,)) for a, b in named if a]
    entries += _packed(matching, left, right, modules)
    entries += _parameters(matching, left, right)
    places = {path: place for place, path in enumerate(Names(left).paths)}
    entries.sort(key=lambda entry: (entry.left.count("."), places.get(entry.left, 0)))
    # A shared parameter may be several on the right: a rule names one of them.
    once = {entry.left: entry for entry in reversed(entries)}
    rules = _Writer([entry for entry in entries if once[entry.left] is entry], modules, left).rules()
    return "\n\n".join(_sections(rules))


def _modules(matching: Matching, left: Description, right: Description) -> dict[str, str]:
    """Return the one module of the right for each matched one of the left: of several the one with most calls."""
    calls: dict[str, Counter[str]] = {}
    for one in matching.modules:
        if one.reference in left.modules and one.candidate in right.modules:
            calls.setdefault(one.reference, Counter())[one.candidate] += one.calls
    return {"": "", **{a: found.most_common(1)[0][0] for a, found in calls.items() if a}}


def _containers(modules: Mapping[str, str], left: Description, right: Description) -> dict[str, str]:
    """Return which containers, that nobody calls, are which: most of their members have one name on both sides."""
    votes: dict[str, Counter[str]] = {}
    taken = set(modules.values())
    known = dict(modules)
    for path in sorted(left.modules, key=lambda path: -path.count(".")):
        if path not in known and votes.get(path):
            best = votes[path].most_common(1)[0][0]
            if best in right.modules and best not in taken:
                known[path] = best
                taken.add(best)
        other = known.get(path, "")
        if path and last(path) == last(other):
            votes.setdefault(parent(path), Counter())[parent(other)] += 1
    return {a: b for a, b in known.items() if a not in modules}


def _packed(matching: Matching, left: Description, right: Description, modules: Mapping[str, str]) -> Iterator[_Entry]:
    """Yield which layers one packs: several of the right for one of the left, or one for each of several."""
    found: dict[str, dict[str, None]] = {}
    taken = set(modules.values())
    for one in matching.parameters:
        if one.layout == _PACKED:
            there = parent(one.candidate)
            for path in one.reference:
                here = parent(path)
                if here in left.modules and there in right.modules and here not in modules and there not in taken:
                    found.setdefault(here, {})[there] = None
    for here, several in found.items():
        yield _Entry(here, tuple(several))


def _parameters(matching: Matching, left: Description, right: Description) -> Iterator[_Entry]:
    """Yield the parameters of modules whose kind padiff does not know: its tables say nothing of their names."""
    for one in matching.parameters:
        if one.buffer or len(one.reference) != 1 or one.layout == _PACKED:
            continue
        kinds = [_kind(left, one.reference[0]), _kind(right, one.candidate)]
        if None in kinds:
            laid_out = LAYOUTS.get(one.layout) if kinds == [None, None] else None
            yield _Entry(one.reference[0], (one.candidate,), layout=laid_out or None)


def _kind(about: Description, parameter: str) -> str | None:
    module = about.modules.get(parent(parameter))
    return None if module is None else module.module.kind


class _Writer:
    """Make rules until every entry is where it belongs."""

    def __init__(self, entries: Sequence[_Entry], modules: Mapping[str, str], left: Description) -> None:
        self._entries, self._modules, self._names = entries, modules, Names(left)
        self._rules: dict[tuple[str, tuple[str, ...]], Rule] = {}
        self._asked = by_scope([])
        self._levels: Counter[str] = Counter()
        """How many parents each entry's rule stands further up than at the nearest."""

    def rules(self) -> list[Rule]:
        """Return the rules: stated as near as possible, and where its class says otherwise elsewhere, further up."""
        settled = False
        while not settled:
            settled = True
            for entry in self._entries:
                if not self._is_right(entry):
                    settled = False
                    self._tell(entry)
        return list(self._rules.values())

    def _is_right(self, entry: _Entry) -> bool:
        to, rule = follow(self._asked, self._names, entry.left)
        if entry.layout is not None and (rule is None or rule.layout is not entry.layout):
            return False
        if len(entry.right) > 1:
            return rule is not None and to is not None and self._targets(to, rule) == entry.right
        return to == entry.right[0]

    @staticmethod
    def _targets(to: str, rule: Rule) -> tuple[str, ...]:
        parent = to.removesuffix(rule.to[0])
        return tuple(parent + name for name in rule.to)

    def _tell(self, entry: _Entry) -> None:
        scope, key, to = self._line(entry, self._levels[entry.left])
        here = self._rules.get((scope, key))
        if scope != TOP and (here is not None or self._is_outvoted(scope, key, to)):
            # Elsewhere the same line means something else.
            self._levels[entry.left] += 1
            self._tell(entry)
            return
        self._rules[scope, key] = Rule(scope, key, to, 0, 0, entry.layout)
        self._asked = by_scope(self._rules.values())

    def _line(self, entry: _Entry, level: int) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
        """Return the section, left and right names that tell an entry, from a parent so many further up."""
        above = [one for one in upwards(parent(entry.left)) if one in self._modules and self._holds(one, entry.right)]
        top = above[min(level, len(above) - 1)]
        key = tuple(below(entry.left, top).split("."))
        return self._names.scopes(top)[0], key, tuple(below(path, self._modules[top]) for path in entry.right)

    def _holds(self, path: str, right: Sequence[str]) -> bool:
        """Return whether all of some right paths are below the counterpart of a left one."""
        return all(below(other, self._modules[path]) for other in right)

    def _is_outvoted(self, scope: str, key: tuple[str, ...], to: tuple[str, ...]) -> bool:
        """Return whether more modules of a class mean something else by a name."""
        said: Counter[tuple[str, ...]] = Counter()
        for entry in self._entries:
            line = self._line(entry, 0)
            if line[:2] == (scope, key):
                said[line[2]] += 1
        return bool(said) and said.most_common(1)[0][1] > said[to]


def _sections(rules: Sequence[Rule]) -> Iterator[str]:
    """Yield the sections, the model's own first, in the order in which they came up."""
    scopes = dict.fromkeys([TOP, *(rule.scope for rule in rules)])
    for scope in scopes:
        own = [rule for rule in rules if rule.scope == scope]
        if own:
            yield "\n".join([f"{_word(scope)}:", *(f"  {_word('.'.join(r.key))}: {_right(r)}" for r in own)])


def _right(rule: Rule) -> str:
    names = [_word(name) for name in rule.to]
    name = names[0] if len(names) == 1 else f"[{', '.join(names)}]"
    if rule.layout is None:
        return name
    layout = next(word for word, transposed in LAYOUTS.items() if transposed is rule.layout)
    return f"{{to: {name}, layout: {layout}}}"


def _word(name: str) -> str:
    """Return a name as YAML spells it: in quotes where it would be read as something else."""
    if _PLAIN.fullmatch(name) and name.lower() not in _WORDS:
        return name
    return json.dumps(name, ensure_ascii=False) if not name.isprintable() or "'" in name else f"'{name}'"
