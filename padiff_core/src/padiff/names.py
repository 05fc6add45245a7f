"""Compare names as people give them: ``encoder.layers.0.self_attn.q_proj`` is ``bert.layer.0.attention.query``."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["renumbered", "similarity", "words"]

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
    """Return each path with its bare numbers replaced by ranks among the siblings that are listed.

    In ``Sequential(conv, relu, conv)`` the convolutions are ``0`` and ``2``; with a functional relu ``0`` and ``1``.
    Ranked among those that hold parameters they are ``0`` and ``1`` in both.
    """
    listed = list(paths)
    numbers: dict[str, set[int]] = {}
    for path in listed:
        steps = path.split(".")
        for i, step in enumerate(steps):
            if step.isdigit():
                numbers.setdefault(".".join(steps[:i]), set()).add(int(step))
    ranks = {parent: {n: rank for rank, n in enumerate(sorted(found))} for parent, found in numbers.items()}

    def ranked(path: str) -> str:
        steps = path.split(".")
        return ".".join(
            str(ranks[".".join(steps[:i])][int(step)]) if step.isdigit() else step for i, step in enumerate(steps)
        )

    return {path: ranked(path) for path in listed}


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
