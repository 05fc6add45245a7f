"""Compare names as people give them: ``encoder.layers.0.self_attn.q_proj`` is ``bert.layer.0.attention.query``."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from padiff.paths import downwards, last, parent

_Saying = tuple[set[tuple[object, ...]], tuple[str, int] | None]
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_WEIGHT = re.compile(r"^w(?=[qkvo]$)")
"""The weight of something, as in ``wq``."""


def words(path: str) -> list[str]:
    """Split a dotted path into words; a number also counts together with the word before it."""
    found: list[str] = []
    for piece in _WORD.findall(path):
        if piece.isdigit() and found:
            found.append(f"{found[-1]}{int(piece)}")
        else:
            found.append(_WEIGHT.sub("", piece.lower()))
    return found


def _in_full(ours: set[str], theirs: set[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return for the words of each side what they abbreviate on the other: ``q`` is ``query`` where that says only one.

    An abbreviation begins as the word does, and leaves letters out: ``attn``, ``emb``, ``ln`` of ``layernorm``. A word
    that both sides have stands for itself.
    """
    found: tuple[dict[str, str], dict[str, str]] = {}, {}
    for full, short, longer in ((found[0], ours - theirs, theirs - ours), (found[1], theirs - ours, ours - theirs)):
        said = {word: [other for other in longer if _abbreviates(word, other)] for word in short}
        claims = Counter(other for others in said.values() for other in others)
        full.update({word: others[0] for word, others in said.items() if len(others) == 1 == claims[others[0]]})
    return found


def _abbreviates(short: str, word: str) -> bool:
    letters = iter(word)
    return len(short) < len(word) and short[0] == word[0] and all(letter in letters for letter in short)


def renumbered(paths: Iterable[str]) -> dict[str, str]:
    """Return each path with its numbers replaced by ranks among the siblings that are listed.

    In ``Sequential(conv, relu, conv)`` the convolutions are ``0`` and ``2``; with a functional relu ``0`` and ``1``.
    Ranked among those that hold parameters they are ``0`` and ``1`` in both. So are ``conv1``, ``conv2`` and
    ``conv0``, ``conv1``.
    """
    listed = list(paths)
    ranks = {key: {n: rank for rank, n in enumerate(sorted(found))} for key, found in _siblings(listed).items()}

    def ranked(path: str) -> str:
        steps = path.split(".")
        for home, stem, number in _numbered(path):
            steps[home.count(".") + 1 if home else 0] = f"{stem}{ranks[home, stem][number]}"
        return ".".join(steps)

    return {path: ranked(path) for path in listed}


def _siblings(paths: Iterable[str]) -> dict[tuple[str, str], set[int]]:
    """Return the numbers that steps end in, by what they are called else, and where."""
    found: dict[tuple[str, str], set[int]] = {}
    for home, stem, number in (step for path in paths for step in _numbered(path)):
        found.setdefault((home, stem), set()).add(number)
    return found


def _numbered(path: str) -> Iterator[tuple[str, str, int]]:
    """Yield (path of the parent, name before the number, number) of the steps that end in one."""
    steps = path.split(".")
    for i, step in enumerate(steps):
        found = _NUMBERED.fullmatch(step)
        if found:
            yield ".".join(steps[:i]), found[1], int(found[2])


SURE = 3
"""How far names agree that say the same beyond doubt."""
_NUMBERED = re.compile(r"(.*?)(\d+)")
_FILLERS = frozenset({"proj", "projection", "fc", "dense", "lin", "linear", "layer", "module", "weight"})
"""Words that say no more than that there is a layer."""


def agreement(rows: Sequence[str], columns: Sequence[str]) -> NDArray[np.int64]:
    """Return how surely row names and column names say the same: 3 beyond doubt, 1 the same part of the model, 0.

    Beyond doubt: the words of the last step agree, and the numbers all along the path, as they stand or as ranks among
    equally many siblings. ``layers.0.self_attn.q_proj`` and ``layer.0.attention.query`` say the same. A last step
    that is a bare number says nothing. The same part: the first number of the path agrees, as such a rank.
    """
    ours, theirs = _sayings_of(rows, columns)
    found = [[SURE * (not a.isdisjoint(b)) + bool(p is not None and p == q) for b, q in theirs] for a, p in ours]
    return np.array(found, dtype=np.int64).reshape(len(rows), len(columns))


def in_doubt(rows: Sequence[str], columns: Sequence[str]) -> list[int]:
    """Return the places at which two names do not say the same beyond doubt."""
    return [place for place, said in enumerate(np.diagonal(agreement(rows, columns))) if said < SURE]


def namesakes(rows: Sequence[str], columns: Sequence[str]) -> dict[int, int]:
    """Return for each row name the one column name that says the same beyond doubt, which says so of no other row."""
    ours, theirs = _sayings_of(rows, columns)
    said: dict[tuple[object, ...], set[int]] = {}
    for j, (sayings, _) in enumerate(theirs):
        for saying in sayings:
            said.setdefault(saying, set()).add(j)
    found = {i: set().union(*(said.get(saying, ()) for saying in sayings)) for i, (sayings, _) in enumerate(ours)}
    claims = Counter(j for columns in found.values() for j in columns)
    return {i: min(js) for i, js in found.items() if len(js) == 1 == claims[min(js)]}


def _sayings_of(rows: Sequence[str], columns: Sequence[str]) -> tuple[list[_Saying], list[_Saying]]:
    """Return what names of both sides say, in the words of the side that has these in full.

    What is alone below a module says what that says, too: ``key.inner`` of a wrapper is a ``key``.
    """
    sides = [[paths, unwrapped(paths)] for paths in (rows, columns)]
    said = [[_telling([_said(path) for path in paths]) for paths in side] for side in sides]
    full = _in_full(*({word for some in side for words in some for word in words} for side in said))
    ours, theirs = (
        [
            _sayings(paths, [frozenset(more.get(word, word) for word in words) for words in some])
            for paths, some in zip(side, words_of, strict=True)
        ]
        for side, words_of, more in zip(sides, said, full, strict=True)
    )
    # A wrapper's name meets one that is no wrapper's: of two wrappers the names inside speak.
    mine = [(_tagged(a, "", "<") | _tagged(b, ">"), part) for (a, part), (b, _) in zip(*ours, strict=True)]
    yours = [(_tagged(a, "", ">") | _tagged(b, "<"), part) for (a, part), (b, _) in zip(*theirs, strict=True)]
    return mine, yours


def _tagged(sayings: set[tuple[object, ...]], *tags: str) -> set[tuple[object, ...]]:
    return {(tag, *saying) for saying in sayings for tag in tags}


def unwrapped(paths: Sequence[str]) -> list[str]:
    """Return each path as the topmost module that nothing else of them is below."""
    below = Counter(above for path in {*paths} for above in downwards(parent(path)))
    return [next((above for above in downwards(parent(path)) if below[above] == 1), path) for path in paths]


def _telling(said: Sequence[frozenset[str]]) -> list[frozenset[str]]:
    """Return the words that tell the names of a side apart: what all of them say, says nothing."""
    common = frozenset.intersection(*said) if len(said) > 1 else frozenset()
    return [words - common or words for words in said]


def _sayings(paths: Sequence[str], words_of: Sequence[frozenset[str]]) -> list[_Saying]:
    ranked, siblings = renumbered(paths), _siblings(paths)
    found = []
    for path, said in zip(paths, words_of, strict=True):
        counts = [len(siblings[home, stem]) for home, stem, _ in _numbered(path)]
        numbers, ranks = (tuple(re.findall(r"\d+", name)) for name in (path, ranked[path]))
        own = len(re.findall(r"\d+", last(path)))  # those of the layer itself: `c1` is not the `conv` of `r1`
        sure = {("as they stand", said, own, numbers), ("ranks", said, own, ranks, *counts)} if said else set()
        found.append((sure, (ranks[0], counts[0]) if counts else None))
    return found


def _said(path: str) -> frozenset[str]:
    found = {word for word in words(last(path)) if not word[-1].isdigit()}
    return frozenset(found - _FILLERS or found)


def similarity(rows: Sequence[str], columns: Sequence[str]) -> NDArray[np.float32]:
    """Return the similarity of each row name with each column name, in [0, 1].

    Cosine of the weighted word counts: a word weighs more the rarer it is over all names (inverse document
    frequency), and the nearer it stands to the end of its path.
    """
    sides = [[words(name) for name in names] for names in (rows, columns)]
    full = _in_full(*({word for found in side for word in found} for side in sides))
    split = [[more.get(word, word) for word in found] for side, more in zip(sides, full, strict=True) for found in side]
    frequency = Counter(word for found in split for word in set(found))
    vocabulary = {word: i for i, word in enumerate(frequency)}
    rarity = {word: np.log(1.0 + len(split) / count) for word, count in frequency.items()}
    vectors = np.zeros((len(split), max(len(vocabulary), 1)), np.float32)
    for vector, found in zip(vectors, split, strict=True):
        for depth, word in enumerate(reversed(found)):
            vector[vocabulary[word]] += rarity[word] / (1.0 + 0.5 * depth)
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    vectors /= np.where(norms == 0, 1, norms)
    result: NDArray[np.float32] = vectors[: len(rows)] @ vectors[len(rows) :].T
    return result
