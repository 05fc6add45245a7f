"""Compare one optimizer step: both sides from the same weights and the same gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from padiff.adapter import Adapter, Model, Parameter
from padiff.judging._metrics import Measures
from padiff.judging._parameters import NOTHING, Ignored, is_ignored
from padiff.numerics import ACCUMULATED, EXACT, SETTING, difference, epsilon
from padiff.parameters import Link, UnitMatch, canonical, copy_link, view
from padiff.report import Cause, Evidence, Figures, Finding, Phase, Place, Verdict, What
from padiff.trace import Trace

__all__ = ["step_both"]

Array = NDArray[Any]
Rule = Callable[[Array, Array], bool]


def step_both(
    reference: Model,
    candidate: Model,
    optimizers: tuple[Any, Any],
    matches: Sequence[UnitMatch],
    trace: Trace,
    step: int,
    ignored: Ignored = NOTHING,
    rule: Rule | None = None,
    measures: Measures | None = None,
) -> list[Finding]:
    """Give both sides the reference's gradients, let both optimizers step, and judge the weights after.

    Parameters of modules whose paths are in ``ignored`` are not judged. ``rule`` is the user's own: whether a
    candidate's array (second) is close enough to the reference's (first). ``measures`` are the metrics of plugins.
    The candidate then gets the reference's weights, so that the next step starts from the same place again.
    """
    links = [(match, link) for match in matches for link in match.links if not link.buffer]
    before = {link: np.array(_ours(link)) for _, link in links if link.differentiated}
    _give_gradients(reference, links, trace)
    for model, optimizer in ((reference, optimizers[0]), (candidate, optimizers[1])):
        model.step(optimizer)
    cause = _contrast(reference.adapter, candidate.adapter, optimizers)
    found = []
    for match, link in links:
        if link.differentiated and not is_ignored(match, link, ignored):
            finding = _judge(match, link, before[link], cause, step, rule, measures or Measures())
            found += [] if finding is None else [finding]
        copy_link(link)
    return found


def _ours(link: Link) -> Array:
    values = link.expected(view)
    return canonical(link.candidate, link.candidate.parameter.view()) if values is None else values


def _give_gradients(reference: Model, links: Sequence[tuple[UnitMatch, Link]], trace: Trace) -> None:
    for path, parameter in reference.parameters().items():
        key = trace.parameter_gradients.get(path)
        if not parameter.buffer:
            parameter.set_gradient(None if key is None else trace.array(key))

    def recorded(parameter: Parameter) -> Array | None:
        key = trace.parameter_gradients.get(parameter.path)
        return None if key is None else trace.array(key)

    packed: dict[str, Array] = {}
    for _, link in links:
        values = link.gradient(recorded) if link.differentiated else None
        parameter = link.candidate.parameter
        if values is None:
            parameter.set_gradient(None)
            continue
        native = packed.setdefault(parameter.path, np.zeros(parameter.shape, values.dtype))
        link.candidate.part.write(native, values)
        parameter.set_gradient(native)


def _judge(
    match: UnitMatch,
    link: Link,
    before: Array,
    cause: Cause | None,
    step: int,
    rule: Rule | None,
    measures: Measures,
) -> Finding | None:
    ours, theirs = _ours(link), canonical(link.candidate, link.candidate.parameter.view())
    apart = difference(ours, theirs)
    if apart.equal or (rule(ours, theirs) if rule else apart.rel_l2 <= EXACT(epsilon(ours.dtype))):
        return None
    moved = difference(ours, before)
    if rule is None and not moved.equal and apart.rel_l2 <= ACCUMULATED(epsilon(ours.dtype)) * moved.rel_l2:
        return None
    return Finding(
        verdict=Verdict.DIFFERS,
        phase=Phase.UPDATE,
        reference=_place(match.reference.module, link.reference.parameter.path),
        candidate=_place(match.candidate.module, link.candidate.parameter.path),
        what=What("updated_parameter", link.candidate.part.parameter),
        figures=Figures(apart.rel_l2, apart.max_abs, metrics=measures(ours, theirs)),
        evidence=(Evidence.of("update", step_rel_l2=moved.rel_l2, rel_l2=apart.rel_l2),),
        cause=cause,
        source=True,
        step=step,
    )


def _place(module: Any, path: str) -> Place:
    return Place(path.rpartition(".")[0], module.class_name)


def _contrast(reference: Adapter, candidate: Adapter, optimizers: tuple[Any, Any]) -> Cause | None:
    """Return the optimizers' hyper-parameters that differ."""
    ours = reference.optimizer_settings(optimizers[0])
    theirs = candidate.optimizer_settings(optimizers[1])
    if not ours or not theirs:
        return None
    found = {
        name: {"reference": _shown(ours, name), "candidate": _shown(theirs, name)}
        for name in dict.fromkeys((*ours, *theirs))
        if not _same(ours.get(name), theirs.get(name))
    }
    return Cause("optimizer_settings", found) if found else None


def _shown(settings: Any, name: str) -> str:
    return repr(settings[name]) if name in settings else "(none)"


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, int | float) and isinstance(b, int | float):
        return abs(a - b) <= SETTING(0.0) * max(abs(a), abs(b))
    return bool(a == b) or (not a and not b)
