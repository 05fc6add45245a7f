"""Count what each way of comparing finds of the faults that the tests plant, in PyTorch models and their Paddle ports.

Run ``python benchmarks/versus.py`` (``--pairs transformer llama convnet``). Each fault of ``tests/pairs`` that lies in
the port's code is planted by itself; padiff copies the weights, for the other ways too, which are also told which layer
belongs to which. A fault is *found* where a way says that anything differs, and *placed* where it names the faulty
module: padiff all that is faulty and nothing else, the others in the first layer that differs, in the order of
execution. That layer is often the one behind faulty code, so this is counted too, as *beside*.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

RULES: dict[str, dict[str, float]] = {
    "assert_close, outputs": {},
    "assert_close, every layer": {},
    "the same, atol 1e-4, rtol 1e-5": {"atol": 1e-4, "rtol": 1e-5},
}
"""Ways of comparing with ``torch.testing.assert_close`` -> its tolerances; none are its defaults."""
PADIFF = "padiff"
CLEAN: tuple[dict[str, Any], ...] = (
    *({"seed": seed} for seed in range(3)),
    {"train": False},
    {"depth": 1},
    {"depth": 4},
)
"""What right ports are built with."""


@attrs.define
class Tally:
    """What one way of comparing got right."""

    found: int = 0
    placed: int = 0
    beside: int = 0
    alarms: int = 0


def tensors(value: Any) -> list[Any]:
    """Return the tensors in what a layer returned."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return [tensor for part in value for tensor in tensors(part)]
    return [value] if hasattr(value, "backward") else []


@contextlib.contextmanager
def watched(model: Any) -> Iterator[dict[str, list[Any]]]:
    """Keep what each layer returns, by path, in the order in which they end."""
    from pairs.zoo import native

    framework = "torch" if hasattr(model, "register_forward_hook") else "paddle"
    kept: dict[str, list[Any]] = {}
    named = model.named_modules() if framework == "torch" else model.named_sublayers(include_self=True)
    attach = "register_forward_hook" if framework == "torch" else "register_forward_post_hook"

    def hook(path: str) -> Any:
        def keep(_module: Any, _inputs: Any, output: Any) -> None:
            kept.setdefault(path, []).extend(native.read(framework, tensor) for tensor in tensors(output))

        return keep

    handles = [getattr(module, attach)(hook(path)) for path, module in named]
    try:
        yield kept
    finally:
        for handle in handles:
            handle.remove()


def run(framework: str, model: Any, inputs: dict[str, Any]) -> tuple[dict[str, list[Any]], dict[str, Any]]:
    """Return every layer's outputs and every parameter's gradient, from a random gradient for each output."""
    from importlib import import_module

    import numpy as np

    from pairs.zoo import native

    module = import_module(framework)
    give = module.from_numpy if framework == "torch" else module.to_tensor
    native.seed(framework, 0)
    with watched(model) as kept:
        ends = tensors(model(**{name: give(array) for name, array in inputs.items()}))
    ends = [end for end in ends if (end.requires_grad if framework == "torch" else not end.stop_gradient)]
    rng = np.random.default_rng(0)
    module.autograd.backward(ends, [give(rng.standard_normal(tuple(end.shape), dtype="float32")) for end in ends])
    given = {}
    for path, parameter in native.parameters(framework, model).items():
        if parameter.grad is not None:
            given[path] = native.read(framework, parameter.grad)
    model.zero_grad() if framework == "torch" else model.clear_gradients()
    return kept, given


def close(reference: Any, candidate: Any, tolerances: dict[str, float]) -> bool:
    """Return what ``torch.testing.assert_close`` says of two arrays."""
    import torch

    try:
        torch.testing.assert_close(torch.from_numpy(candidate), torch.from_numpy(reference), **tolerances)
    except AssertionError:
        return False
    return True


def first_apart(rule: str, matched: Any, reference: Any, candidate: Any) -> str | None:
    """Return the first layer that differs under a rule, or that of the first gradient; None where nothing does."""
    tolerances, every = RULES[rule], "outputs" not in rule
    partners = {pair.candidate: pair.reference for pair in matched.modules} if every else {"": ""}
    partners[""] = ""
    (ours, our_gradients), (theirs, their_gradients) = reference, candidate
    for path, outputs in theirs.items():
        others = ours.get(partners.get(path, "-"), [])
        if not all(close(*pair, tolerances) for pair in zip(others, outputs, strict=False)):
            return path
    if not every:
        return None
    at = list(theirs)
    order = sorted(their_gradients, key=lambda name: -at.index(owner) if (owner := owner_of(name)) in at else 0)
    sources = {pair.candidate: pair for pair in matched.parameters if len(pair.reference) == 1}
    for name in order:
        pair = sources.get(name)
        if pair is None or pair.layout not in ("as in the reference", "transposed"):
            continue
        ours_there = our_gradients.get(pair.reference[0])
        if ours_there is None:
            return owner_of(name)
        if not close(ours_there.T if pair.layout == "transposed" else ours_there, their_gradients[name], tolerances):
            return owner_of(name)
    return None


def owner_of(name: str) -> str:
    """Return the path of the module that holds a parameter."""
    return name.rpartition(".")[0]


def judge(tallies: dict[str, Tally], row: Any, matched: Any, sides: Any, report: Any, port: Any) -> None:
    """Count what each way says of one fault."""
    from pairs.judging import assert_named, places_of

    tallies[PADIFF].found += not report.aligned
    with contextlib.suppress(AssertionError):
        assert_named(report, row, "paddle", port)
        tallies[PADIFF].placed += 1
        tallies[PADIFF].beside += 1
    places = frozenset().union(*places_of(row, "paddle"))
    behind = {f"{place}.{child}".lstrip(".") for place in places for child in _children(row)}
    for rule in RULES:
        path = first_apart(rule, matched, *sides)
        tallies[rule].found += path is not None
        tallies[rule].placed += path in places
        tallies[rule].beside += path in places | behind


def _children(row: Any) -> list[str]:
    return row.before["paddle"].split("|") if row.before else []


def main() -> int:
    """Print the table."""
    import numpy as np

    import padiff
    from pairs import zoo
    from pairs.faults import ROWS

    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pairs", nargs="+", default=["transformer", "llama", "convnet"], choices=zoo.PAIRS)
    options = parser.parse_args()
    frameworks = ("torch", "paddle")
    tallies = {name: Tally() for name in (*RULES, PADIFF)}
    faults = clean = 0
    start = time.process_time()
    for pair in options.pairs:
        rows = [
            row
            for row in ROWS
            if row.pair == pair and not (row.tamper or row.extra) and row.transfer and frameworks in row.directions
        ]
        cases = [(None, given) for given in CLEAN] + [(row, {"train": row.train, **row.options}) for row in rows]
        for row, given in cases:
            if row and row.options.get("dropout"):
                continue  # the other ways would compare random numbers
            seed = given.get("seed", 0)
            inputs: dict[str, np.ndarray] = zoo.inputs(pair, seed=seed)
            reference = zoo.build(pair, "torch", **given)
            right = zoo.build(pair, "paddle", **{**given, "seed": seed + 1})
            matched = padiff.diff(reference, right, inputs)
            port = right
            report = matched
            if row is not None:
                port = zoo.build(pair, "paddle", row.planted, **{**given, "seed": seed + 1})
                report = padiff.diff(reference, port, inputs)
            sides = (run("torch", reference, inputs), run("paddle", port, inputs))
            if row is not None:
                faults += 1
                judge(tallies, row, matched.mapping, sides, report, port)
                continue
            clean += 1
            tallies[PADIFF].alarms += not report.aligned
            for rule in RULES:
                tallies[rule].alarms += first_apart(rule, matched.mapping, *sides) is not None
    print(f"{faults} faults, {clean} right ports, torch x paddle: {', '.join(options.pairs)}")
    print(f"{'':32}found  placed  placed or beside  false alarms")
    for name, tally in tallies.items():
        print(f"{name:32}{tally.found:5}{tally.placed:8}{tally.beside:18}{tally.alarms:14}")
    print(f"{time.process_time() - start:.0f} CPU seconds")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
