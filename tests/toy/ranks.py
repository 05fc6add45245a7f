"""A job of several ranks, made up of arrays: a norm, a layer split by its outputs, one split by its inputs."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from padiff.adapter import Placement, Ranks
from padiff.kinds import Part, Unit
from padiff.trace import (
    Call,
    Description,
    Leaf,
    ModuleDescription,
    ModuleRecord,
    ParameterRecord,
    Trace,
    ValueStore,
    rank_folder,
)

from .archive import write_run

Array = Any
PATHS = {"norm": "layer_norm", "up": "linear", "down": "linear"}
LAST = "act"
"""A module without parameters, behind the others."""
SHARD = {"up.weight": Placement("shard", 0), "down.weight": Placement("shard", 1)}
OUTPUTS = {"up": Placement("shard", -1), "down": Placement()}


def weights() -> dict[str, Array]:
    rng = np.random.default_rng(0)
    shapes = {"norm.weight": (4,), "up.weight": (8, 4), "down.weight": (4, 8)}
    return {path: rng.standard_normal(shape).astype(np.float32) for path, shape in shapes.items()}


def x(batch: int = 6) -> Array:
    return np.random.default_rng(1).standard_normal((batch, 4)).astype(np.float32)


def record(
    folder: Path,
    *,
    tp: int = 1,
    dp: int = 1,
    fault: Callable[[int, dict[str, Array]], None] = lambda *_: None,
    reduce: Callable[[list[Array]], list[Array]] | None = None,
    says: bool | None = True,
    left_out: tuple[int, ...] = (),
    last: bool = True,
    twice: bool = False,
    names: Mapping[str, str] | None = None,
    job: str = "",
    shuffled: str = "",
    columns: bool = False,
    stepped: Callable[[int, dict[str, Array]], dict[str, Array]] | None = None,
) -> Path:
    """Run the job, ``tp`` ranks to a model, ``dp`` models; ``fault`` changes a rank's weights, ``reduce`` the sums.

    ``names`` gives modules other paths, ``stepped`` what a rank's weights are after the step. ``shuffled`` computes
    with rows in another order, and puts them back; but for one that it ``forgets``. The last module takes what comes
    before it, or ``twice`` as much. With ``columns`` matrices lie as ``[in, out]``.
    """
    world = tp * dp
    held: dict[int, dict[str, Array]] = {}
    for rank in range(world):
        held[rank] = {
            path: np.split(value, tp, SHARD[path].dim)[rank % tp] if path in SHARD else value
            for path, value in weights().items()
        }
        fault(rank, held[rank])
    for data in range(dp):
        group = [data * tp + index for index in range(tp)]
        given = np.split(x(), dp)[data]
        normed = {rank: given * held[rank]["norm.weight"] for rank in group}
        made = {rank: normed[rank] @ held[rank]["up.weight"].T for rank in group}
        relu = {rank: np.maximum(made[rank], 0) for rank in group}
        parts = [relu[rank] @ held[rank]["down.weight"].T for rank in group]
        sums = reduce(parts) if reduce else [sum(parts[1:], parts[0])] * tp
        for rank, out in zip(group, sums, strict=True):
            taken = out * 2 if twice else out
            end = np.tanh(taken)
            steps = [("norm", given, normed[rank]), ("up", normed[rank], made[rank]), ("down", relu[rank], out)]
            end = end if last else out
            steps += [(LAST, taken, end)] if last else []
            if shuffled:
                order = np.random.default_rng(2).permutation(len(given))
                moved = {id(value): value[order] for _, *both in steps for value in both}
                steps = [(path, moved[id(taken)], moved[id(gave)]) for path, taken, gave in steps]
                end = end[order] if shuffled == "forgets" else end + 0
            ranks = _ranks(rank, tp, dp, job, says=says) if world > 1 else None
            if rank not in left_out:
                where = rank_folder(folder, rank) if world > 1 else folder
                kept = {path: np.ascontiguousarray(value.T) if columns else value for path, value in held[rank].items()}
                about, trace = _about(kept, ranks, columns=columns), _trace(given, steps, end, kept)
                after = stepped(rank, held[rank]) if stepped else {}
                trace.updated = {path: trace.store.put(value) for path, value in after.items()}
                write_run(where, *_renamed(about, trace, names or {}))
    return folder


def record_sequences(folder: Path, *, cp: int = 1, order: Callable[[list[Array]], list[Array]] = list) -> Path:
    """Run a job on tokens whose sequences ``cp`` ranks share, a part from both ends each; inside the sequence is first.

    ``order`` changes in which order the ranks' parts of what the last layer gives come to them.
    """
    tokens = np.random.default_rng(3).integers(0, 9, (3, 8))
    table = np.random.default_rng(4).standard_normal((9, 4)).astype(np.float32)
    held, parts = weights(), [Placement("shard", 1, ends=True).part(tokens, cp, rank) for rank in range(cp)]
    turned = [np.ascontiguousarray(table[part].swapaxes(0, 1)) for part in parts]
    normed = [one * held["norm.weight"] for one in turned]
    made = [np.tanh(one @ held["up.weight"].T) for one in normed]
    gave = order([one @ held["down.weight"].T for one in made])
    for rank in range(cp):
        steps = [("norm", turned[rank], normed[rank]), ("up", normed[rank], made[rank])]
        steps += [("down", made[rank], gave[rank])]
        end = np.ascontiguousarray(gave[rank].mean(2).swapaxes(0, 1))
        spread = {path: {"cp": Placement()} for path in held}
        ranks = Ranks(rank, cp, {"cp": tuple(range(cp))}, spread) if cp > 1 else None
        trace = _trace(parts[rank], steps, end, held)
        write_run(rank_folder(folder, rank) if cp > 1 else folder, _about(held, ranks), [(0, trace)])
    return folder


def _renamed(about: Description, trace: Trace, names: Mapping[str, str]) -> tuple[Description, list[tuple[int, Trace]]]:
    """Return a run with some modules under other paths."""

    def path(one: str) -> str:
        head, _, tail = one.partition(".")
        return f"{names.get(head, head)}.{tail}" if tail else names.get(head, head)

    def moved(held: Mapping[str, Any], change: Callable[[Any], Any] = lambda one: one) -> dict[str, Any]:
        return {path(one): change(value) for one, value in held.items()}

    def record(one: ParameterRecord) -> ParameterRecord:
        return attrs.evolve(one, path=path(one.path), paths=(path(one.path),))

    def module(one: ModuleRecord) -> ModuleRecord:
        return attrs.evolve(one, path=path(one.path))

    ranks = about.ranks
    ranks = ranks and attrs.evolve(ranks, parameters=moved(ranks.parameters), outputs=moved(ranks.outputs))
    modules = moved(about.modules, lambda one: attrs.evolve(one, module=module(one.module)))
    about = attrs.evolve(about, modules=modules, parameters=moved(about.parameters, record), ranks=ranks)
    for call in trace.calls:
        call.module = module(call.module)
        call.key = (call.path, call.ordinal)
    trace.weights, trace.parameters = moved(trace.weights), moved(trace.parameters, record)
    return about, [(0, trace)]


def _ranks(rank: int, tp: int, dp: int, job: str, *, says: bool | None) -> Ranks:
    groups = {}
    if tp > 1:
        groups["tp"] = tuple(range(rank // tp * tp, rank // tp * tp + tp))
    if dp > 1:
        groups["dp"] = tuple(range(rank % tp, tp * dp, tp))
    spread = {path: {axis: Placement() for axis in groups} for path in weights()}
    for path, placement in SHARD.items():
        if tp > 1 and says is not None:
            spread[path]["tp"] = placement
    outputs = {path: {"tp": how} for path, how in OUTPUTS.items()} if says and tp > 1 else {}
    return Ranks(rank, tp * dp, groups, spread, outputs, job=job)


def _module(path: str) -> ModuleRecord:
    return ModuleRecord(path, f"made.{(path or 'model').title()}", PATHS.get(path), definition=("made.py", 1))


def _about(held: Mapping[str, Array], ranks: Ranks | None, *, columns: bool = False) -> Description:
    lie = {kind: Part("weight", transpose=(1, 0) if columns and kind == "linear" else None) for kind in PATHS.values()}
    units = {path: {"": Unit(kind, {"weight": lie[kind]})} for path, kind in PATHS.items()}
    modules = {path: ModuleDescription(_module(path), {}, units.get(path, {})) for path in ("", *PATHS, LAST)}
    return Description("toy", "Model", frozenset(), "cpu", False, {"toy": "1"}, modules, _records(held), ranks)


def _records(held: Mapping[str, Array]) -> dict[str, ParameterRecord]:
    return {path: ParameterRecord(path, (path,), "float32", value.shape) for path, value in held.items()}


def _trace(given: Array, steps: Any, out: Array, held: Mapping[str, Array]) -> Trace:
    trace, tokens = Trace(ValueStore()), itertools.count(1)
    known: dict[int, int] = {}

    def leaf(path: str, array: Array) -> Leaf:
        if id(array) not in known:
            known[id(array)] = next(tokens)
            trace.values[known[id(array)]] = trace.store.put(array)
        return Leaf(path, str(array.dtype), array.shape, known[id(array)])

    root = Call(0, _module(""), 0, None, False, inputs=[leaf("x", given)])
    trace.calls.append(root)
    for path, taken, gave in steps:
        call = Call(len(trace.calls), _module(path), 0, root, False)
        call.inputs, call.outputs = [leaf("x", taken)], [leaf("", gave)]
        trace.calls.append(call)
        root.children.append(call)
    root.outputs = [leaf("", out)]
    trace.parameters = _records(held)
    trace.weights = {path: trace.store.put(value) for path, value in held.items()}
    return trace
