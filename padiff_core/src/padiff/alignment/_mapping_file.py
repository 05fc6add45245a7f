"""Read a file of rules that tell module names of one model in those of another, as msprobe's layer mapping has them.

The format is msprobe's: sections named by the class of the left parent (``TopLayer`` for the model itself), and in
each the names of children, left to right; a dotted name crosses levels. Beyond it a value may be a list, or
``{to: ..., layout: ..., groups: ...}``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import attrs

from padiff.errors import MappingError, did_you_mean

TOP = "TopLayer"
_OLD_TOP = "Cell"
LAYOUTS = {"as in the reference": False, "transposed": True}
"""What a rule may say of how a parameter lies on the right, and whether it is transposed then."""
_OPTIONS = ("to", "layout", "groups")
_EXAMPLE = "Hint: a file looks so:\n  TopLayer:\n    module: model\n  GPTModel:\n    language_model.encoder: decoder"


@attrs.frozen(eq=False)
class Rule:
    """One line of a mapping file: below a left parent of this class, this name is that name on the right."""

    scope: str
    key: tuple[str, ...]
    """The steps of the left name."""
    to: tuple[str, ...]
    """The right names: several where one on the left does what several on the right do."""
    line: int
    column: int
    layout: bool | None = None
    """Whether a parameter is transposed on the right, where the rule says so."""
    groups: int | None = None
    """In how many groups a packed layer holds its members, where the rule says so."""

    @property
    def text(self) -> str:
        """Return the rule as its section and what stands left and right."""
        right = self.to[0] if len(self.to) == 1 else f"[{', '.join(self.to)}]"
        return f"{self.scope}: {'.'.join(self.key)}: {right}"


@attrs.frozen
class MappingFile:
    """The rules of a mapping file, in its order."""

    name: str
    rules: tuple[Rule, ...]

    def place(self, rule: Rule) -> str:
        """Return where a rule stands, as ``file:line:column``."""
        return f"{self.name}:{rule.line}:{rule.column}"


def read_mapping(path: str | os.PathLike[str]) -> MappingFile:
    """Read a mapping file; raises `MappingError`, with line and column, for what is none.

    Nothing in the file is executed or constructed: names are taken as they stand.
    """
    name = os.fspath(path)
    try:
        text = Path(name).read_text(encoding="utf-8-sig")
    except OSError as error:
        msg = f"cannot read {name}: {error.strerror}.\nHint: mapping='mapping.yaml' names a file; see docs/mapping.md."
        raise MappingError(msg) from error
    except UnicodeDecodeError as error:
        msg = f"cannot read {name}: byte {error.start} is not UTF-8.\nHint: save the file as UTF-8."
        raise MappingError(msg) from error
    return MappingFile(name, tuple(_Reader(name).rules(text)))


class _Reader:
    def __init__(self, name: str) -> None:
        self._name = name

    def rules(self, text: str) -> Iterator[Rule]:
        top = self._composed(text)
        if top is None:
            return
        scopes: dict[str, Any] = {}
        for key, section in self._entries(top, "sections, each named by a class"):
            scope = self._word(key)
            scope = TOP if scope == _OLD_TOP else scope
            self._once(scopes, scope, key, "put all its names into one section")
            if self._is_empty(section):
                continue
            names: dict[str, Any] = {}
            for left, right in self._entries(section, f"names of what is below a {scope}, left: right"):
                word = self._word(left)
                self._once(names, word, left, "one of the two has to go")
                yield self._rule(scope, word, left, right)

    def _composed(self, text: str) -> Any:
        try:
            import yaml
        except ImportError as error:
            msg = f"{self._name} is read with PyYAML, which is not installed.\nHint: pip install 'padiff-core[yaml]'."
            raise MappingError(msg) from error
        try:
            return yaml.compose(text, Loader=yaml.SafeLoader)
        except yaml.MarkedYAMLError as error:
            self._fail(error.problem_mark or error.context_mark, f"no YAML: {error.problem or error.context}", _EXAMPLE)
        except (yaml.YAMLError, RecursionError) as error:
            self._fail(None, f"no YAML: {str(error).splitlines()[0]}", _EXAMPLE)

    def _entries(self, node: Any, expected: str) -> list[tuple[Any, Any]]:
        if node.id != "mapping":
            self._fail(node.start_mark, f"{_seen(node)}; expected {expected}", _EXAMPLE)
        return list(node.value)

    def _rule(self, scope: str, word: str, left: Any, right: Any) -> Rule:
        steps = tuple(word.split("."))
        if not all(steps):
            self._fail(left.start_mark, f"{word!r} has an empty step", "Hint: names of children, with dots between.")
        mark = left.start_mark
        rule = Rule(scope, steps, (), mark.line + 1, mark.column + 1)
        if right.id != "mapping":
            return attrs.evolve(rule, to=self._targets(right, word))
        said: dict[str, Any] = {}
        for key, value in right.value:
            option = self._word(key)
            if option not in _OPTIONS:
                hint = did_you_mean(option, _OPTIONS) or f"there are {', '.join(_OPTIONS)}."
                self._fail(key.start_mark, f"there is no {option!r} to say of {word!r}", f"Hint: {hint}")
            said[option] = value
        if "to" not in said:
            self._fail(right.start_mark, f"{word!r} has no `to`", f"Hint: {word}: {{to: name, layout: transposed}}")
        rule = attrs.evolve(rule, to=self._targets(said["to"], word))
        if "layout" in said:
            rule = attrs.evolve(rule, layout=self._layout(said["layout"]))
        if "groups" in said:
            rule = attrs.evolve(rule, groups=self._groups(said["groups"]))
        return rule

    def _targets(self, node: Any, word: str) -> tuple[str, ...]:
        nodes = node.value if node.id == "sequence" else [node]
        if not nodes or any(map(self._is_empty, nodes)):
            hint = f"Hint: {word}: its name on the right; what has none there needs no line."
            self._fail(node.start_mark, f"{word!r} names nothing on the right", hint)
        # What stands in parentheses is a remark: msprobe takes it so.
        names = [self._word(one).partition("(")[0].strip() for one in nodes]
        for name, one in zip(names, nodes, strict=True):
            if not all(name.split(".")):
                hint = "Hint: names of children, with dots between."
                self._fail(one.start_mark, f"{self._word(one)!r} has an empty step", hint)
        return tuple(dict.fromkeys(names))

    def _layout(self, node: Any) -> bool:
        word = self._word(node)
        if word not in LAYOUTS:
            there = " or ".join(map(repr, LAYOUTS))
            self._fail(node.start_mark, f"there is no layout {word!r}", f"Hint: layout: {there}.")
        return LAYOUTS[word]

    def _groups(self, node: Any) -> int:
        word = self._word(node)
        if not word.isdecimal() or int(word) < 1:
            hint = "Hint: groups: 12 where each of 12 heads holds a piece of all; 1 where one lies behind the other."
            self._fail(node.start_mark, f"groups is {word!r}; expected a whole number from 1", hint)
        return int(word)

    def _word(self, node: Any) -> str:
        if node.id != "scalar":
            self._fail(node.start_mark, f"{_seen(node)}; expected a name", _EXAMPLE)
        return str(node.value).strip()

    def _once(self, known: dict[str, Any], word: str, node: Any, hint: str) -> None:
        if word in known:
            first = known[word].start_mark.line + 1
            self._fail(node.start_mark, f"{word!r} stands here a second time; first in line {first}", f"Hint: {hint}.")
        known[word] = node

    @staticmethod
    def _is_empty(node: Any) -> bool:
        return bool(node.id == "scalar" and node.tag.endswith(":null"))

    def _fail(self, mark: Any, said: str, hint: str) -> NoReturn:
        place = "" if mark is None else f":{mark.line + 1}:{mark.column + 1}"
        msg = f"{self._name}{place}: {said}.\n{hint}"
        raise MappingError(msg)


def _seen(node: Any) -> str:
    if node.id == "scalar":
        return repr(node.value)
    return "a list" if node.id == "sequence" else "a mapping"
