"""Compare names as people give them: ``encoder.layers.0.self_attn.q_proj`` is ``bert.layer.0.attention.query``."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["agreement", "renumbered", "similarity", "words"]

_SYNONYMS = {
    "attn": "attention",
    "batchnorm": "norm",
    "block": "layer",
    "blocks": "layer",
    "bn": "norm",
    "cls": "head",
    "classifier": "head",
    "convs": "conv",
    "dec": "decoder",
    "dense": "fc",
    "downsample": "shortcut",
    "drop": "dropout",
    "emb": "embedding",
    "embed": "embedding",
    "embeddings": "embedding",
    "embeds": "embedding",
    "enc": "encoder",
    "feature": "features",
    "gn": "norm",
    "h": "layer",
    "k": "key",
    "layernorm": "norm",
    "layers": "layer",
    "lin": "fc",
    "linear": "fc",
    "ln": "norm",
    "mha": "attention",
    "mix": "attention",
    "nrm": "norm",
    "o": "out",
    "output": "out",
    "pos": "position",
    "positional": "position",
    "proj": "projection",
    "q": "query",
    "rmsnorm": "norm",
    "rnn": "recurrent",
    "lstm": "recurrent",
    "gru": "recurrent",
    "seg": "type",
    "segment": "type",
    "skip": "shortcut",
    "stage": "layer",
    "stages": "layer",
    "sublayers": "layer",
    "tok": "word",
    "token": "word",
    "tokens": "word",
    "v": "value",
    "wpe": "position",
    "wte": "word",
    "wq": "query",
    "wk": "key",
    "wv": "value",
    "wo": "out",
}
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")


def words(path: str) -> list[str]:
    """Split a dotted path into words, synonyms made one; a number also counts together with the word before it."""
    found: list[str] = []
    for piece in _WORD.findall(path):
        if piece.isdigit() and found:
            found.append(f"{found[-1]}{int(piece)}")
            continue
        lower = piece.lower()
        found.append(_SYNONYMS.get(lower, lower))
    return found


def renumbered(paths: Iterable[str]) -> dict[str, str]:
    """Return each path with its numbers replaced by ranks among the siblings that are listed.

    In ``Sequential(conv, relu, conv)`` the convolutions are ``0`` and ``2``; with a functional relu ``0`` and ``1``.
    Ranked among those that hold parameters they are ``0`` and ``1`` in both. So are ``conv1``, ``conv2`` and
    ``conv0``, ``conv1``.
    """
    listed = list(paths)
    numbers: dict[tuple[str, str], set[int]] = {}
    for path in listed:
        for parent, stem, number in _numbered(path):
            numbers.setdefault((parent, stem), set()).add(number)
    ranks = {key: {n: rank for rank, n in enumerate(sorted(found))} for key, found in numbers.items()}

    def ranked(path: str) -> str:
        steps = path.split(".")
        for parent, stem, number in _numbered(path):
            steps[parent.count(".") + 1 if parent else 0] = f"{stem}{ranks[parent, stem][number]}"
        return ".".join(steps)

    return {path: ranked(path) for path in listed}


def _numbered(path: str) -> Iterator[tuple[str, str, int]]:
    """Yield (path of the parent, name before the number, number) of the steps that end in one."""
    steps = path.split(".")
    for i, step in enumerate(steps):
        found = _NUMBERED.fullmatch(step)
        if found:
            yield ".".join(steps[:i]), found[1], int(found[2])


_NUMBERED = re.compile(r"(.*?)(\d+)")
_FILLERS = frozenset({"projection", "fc", "layer", "module", "weight"})


def agreement(rows: Sequence[str], columns: Sequence[str]) -> NDArray[np.int64]:
    """Return how surely row names and column names say the same: 3 beyond doubt, 1 the same part of the model, 0.

    Beyond doubt: the words of the last step agree, and the numbers all along the path, as they stand or as ranks among
    equally many siblings. ``layers.0.self_attn.q_proj`` and ``layer.0.attention.query`` say the same. A last step
    that is a bare number says nothing. The same part: the first number of the path agrees, as such a rank.
    """
    ours, theirs = _sayings(rows), _sayings(columns)
    found = [[3 * bool(a & b) + bool(p is not None and p == q) for b, q in theirs] for a, p in ours]
    return np.array(found, dtype=np.int64).reshape(len(rows), len(columns))


def _sayings(paths: Sequence[str]) -> list[tuple[set[tuple[object, ...]], tuple[str, int] | None]]:
    ranked = renumbered(paths)
    sizes: dict[tuple[str, str], set[int]] = {}
    for path in paths:
        for parent, stem, number in _numbered(path):
            sizes.setdefault((parent, stem), set()).add(number)
    found = []
    for path in paths:
        said = _said(path)
        counts = [len(sizes[parent, stem]) for parent, stem, _ in _numbered(path)]
        numbers, ranks = (tuple(re.findall(r"\d+", name)) for name in (path, ranked[path]))
        sure = {("as they stand", said, numbers), ("ranks", said, ranks, *counts)} if said else set()
        found.append((sure, (ranks[0], counts[0]) if counts else None))
    return found


def _said(path: str) -> frozenset[str]:
    last = path.rpartition(".")[2]
    found = {word for word in words(last) if not word[-1].isdigit()}
    return frozenset(found - _FILLERS or found)


def similarity(rows: Sequence[str], columns: Sequence[str]) -> NDArray[np.float32]:
    """Return the similarity of each row name with each column name, in [0, 1].

    Cosine of the weighted word counts: a word weighs more the rarer it is over all names (inverse document
    frequency), and the nearer it stands to the end of its path.
    """
    split = [words(name) for name in (*rows, *columns)]
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
