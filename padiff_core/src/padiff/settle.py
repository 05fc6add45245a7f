"""Settle suspects: is a difference a fault, rounding, another precision, or chance?

The evidence, strongest first: both sides alone in float64; the reference twice, where it disagrees with itself;
the reference's own rounding error (the noise floor); the format's machine epsilon.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from padiff.align import Pair
from padiff.alone import Alone, Bench
from padiff.compare import Difference, difference
from padiff.explain import contrasts
from padiff.report import Figures, Verdict

__all__ = ["QUIET", "QUIET_BACKWARD", "QUIET_LIBRARY", "Ruling", "Settler", "epsilon", "is_suspect", "relative"]

Array = NDArray[Any]
Reader = Callable[[Alone, bool], Array | None]
"""Takes one value from what a call did alone; the flag is true for the reference's side."""

QUIET = 4.0
"""A local error of so many machine epsilons (relative L2) needs no settling; aligned float32 calls show up to 2.5."""
QUIET_LIBRARY = 32.0
"""The same for a framework's own module of a known kind with equal hyper-parameters: large sums show up to 8, and a
fault in such a module is none of the port's."""
QUIET_BACKWARD = 128.0
"""The same for gradients: a fault that is not seen forward (a detach, a hook) is gross."""
_QUIET_ELEMENT = 64.0
"""The same for the largest error of one element, against the root mean square."""
_TOGETHER = 1e-8
"""Relative L2 in float64 below which two sides are together; aligned calls show 1e-13."""
_CONSTANT = 5e-7
"""The same where no hyper-parameter differs: kernels hold constants (an epsilon, a momentum, hardsigmoid's slope) in
float32, whose machine epsilon is 1.2e-7, whatever they compute in."""
_FLOORS = 3.0
_WORST = 16.0
"""Machine epsilons of local error that rounding can explain where the floor was lucky."""
_COARSE = 1e-4
"""Machine epsilon above which rounding hides faults: every call is settled in float64."""
_JITTER = 1e-11
_NEXT_WIDER = {"float64": None, "float32": "float64", "float16": "float64", "bfloat16": "float64"}


@attrs.frozen
class Ruling:
    """Say what a suspect turned out to be, and on what evidence."""

    verdict: Verdict
    figures: Figures
    evidence: tuple[str, ...]
    hint: str | None = None


def epsilon(dtype: np.dtype[Any]) -> float:
    """Return the machine epsilon of a floating dtype, 0 for exact ones."""
    if dtype.kind in "iub":
        return 0.0
    info: Any = ml_dtypes.finfo if dtype.kind == "V" else np.finfo
    return float(info(dtype).eps)


def is_suspect(apart: Difference, dtype: np.dtype[Any], scale: float = 0.0, quiet: float = QUIET) -> bool:
    """Return whether a local error is more than the format's own rounding explains at first sight.

    ``scale`` is the magnitude (root mean square) of what the value was computed from, where the value itself may be
    zero but for rounding: the gradient of a bias that a normalisation cancels. ``quiet`` is how many machine epsilons
    need no settling.
    """
    if apart.equal:
        return False
    eps = epsilon(dtype)
    if eps == 0 or eps > _COARSE or not apart.shape_equal or apart.nan_mismatch:
        return True
    bound = _QUIET_ELEMENT * quiet / QUIET * eps * max(apart.scale, scale) * max(1.0, np.log10(max(apart.count, 1)))
    return relative(apart, scale) > quiet * eps or bool(apart.max_abs > bound)


def relative(apart: Difference, scale: float = 0.0) -> float:
    """Return the relative L2 error, against ``scale`` (a root mean square) where that is more than the reference's."""
    if apart.equal or not scale > apart.scale:
        return apart.rel_l2
    return apart.rel_l2 * apart.scale / scale if np.isfinite(apart.rel_l2) else apart.max_abs / scale


@attrs.define(eq=False)
class _Runs:
    """Remember what each pair did alone, so that several suspects of one call share the runs."""

    reference: Alone | None = None
    candidate: Alone | None = None
    why_not: str = ""


class Settler:
    """Settle suspects by running calls alone; each call is run once for all its suspects."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self._runs: dict[tuple[int, str | None, bool], _Runs] = {}
        self._chance: dict[int, tuple[Alone, Alone] | None] = {}

    def settle(
        self, pair: Pair, read: Reader, native: Difference, truth: Array | None, *, scale: float = 0.0
    ) -> Ruling:
        """Rule on one value of a call: ``read`` takes it from what the call did alone.

        ``native`` is the local difference seen in the forced run, ``truth`` the reference's recorded value, ``scale``
        as in `is_suspect`.
        """
        eps = epsilon(truth.dtype) if truth is not None else float(np.finfo(np.float32).eps)
        lifted = None if eps == 0 else "float64"
        runs = self.runs(pair, lifted)
        if runs.reference is None or runs.candidate is None:
            if self.by_chance(pair, read):
                return self._stochastic(pair, read, native)
            return self._by_floor(pair, read, native, eps, runs.why_not)
        ours, theirs = read(runs.reference, True), read(runs.candidate, False)
        if ours is None or theirs is None:
            ours, theirs = _zeros_for_missing(ours, theirs)
        if ours is None or theirs is None:
            return self._by_floor(pair, read, native, eps, "the value does not arise when the call runs alone")
        if self.by_chance(pair, read):
            return self._stochastic(pair, read, native)
        wide = relative(difference(ours, theirs), scale)
        floor = None if truth is None or truth.shape != ours.shape else relative(difference(ours, truth), scale)
        figures = Figures(relative(native, scale), native.max_abs, floor, wide)
        return self._rule(pair, read, figures, eps, native)

    def _rule(self, pair: Pair, read: Reader, figures: Figures, eps: float, native: Difference) -> Ruling:
        wide, floor, local = figures.rel_l2_float64 or 0.0, figures.floor or 0.0, figures.rel_l2
        if eps == 0:
            return Ruling(Verdict.DIFFERS, figures, ("whole numbers differ",))
        small = local <= max(_FLOORS * floor, _WORST * eps) and not native.nan_mismatch
        same_settings = not contrasts(pair.reference.module, pair.candidate.module)
        if wide <= (_CONSTANT if same_settings else _TOGETHER):
            text = f"together in float64 ({wide:.1e}), natively {local:.1e} apart (noise floor {floor:.1e})"
            return Ruling(Verdict.ROUNDING if small else Verdict.PRECISION, figures, (text,))
        if small and wide <= _WORST * eps and self._casts(pair, read):
            text = "computes in a fixed narrower type even when lifted to float64; within rounding of that type"
            return Ruling(Verdict.ROUNDING, figures, (text,))
        text = f"settled by running both sides alone in float64, where rounding stays below {_TOGETHER:.0e}"
        return Ruling(Verdict.DIFFERS, figures, (text,))

    def _by_floor(self, pair: Pair, read: Reader, native: Difference, eps: float, why: str) -> Ruling:
        figures = Figures(native.rel_l2, native.max_abs)
        text = f"not settled in float64: {why}; judged by machine epsilon alone"
        small = eps > 0 and native.rel_l2 <= 64 * eps and not native.nan_mismatch
        return Ruling(Verdict.ROUNDING if small else Verdict.DIFFERS, figures, (text,))

    def runs(self, pair: Pair, dtype: str | None, *, own: bool = True) -> _Runs:
        """Return what both sides of a pair do alone in a dtype (None: their own)."""
        key = (id(pair), dtype, own)
        if key not in self._runs:
            self._runs[key] = self._run_both(pair, dtype, own)
        return self._runs[key]

    def _run_both(self, pair: Pair, dtype: str | None, own: bool) -> _Runs:
        runs = _Runs()
        try:
            runs.reference = self.bench.run_reference(pair, dtype)
            runs.candidate = self.bench.run_candidate(pair, runs.reference.observed, dtype, own=own)
        except Exception as error:  # a kernel without float64, a hard-coded cast: the reason goes into the evidence
            side = "candidate" if runs.reference is not None else "reference"
            runs.why_not = f"the {side} cannot run there ({type(error).__name__}: {str(error).strip()[:120]})"
        return runs

    def by_chance(self, pair: Pair, read: Reader) -> bool:
        """Return whether the reference, run twice with other seeds, disagrees with itself here."""
        if id(pair) not in self._chance:
            try:
                self._chance[id(pair)] = (
                    self.bench.run_reference(pair, seed=1),
                    self.bench.run_reference(pair, seed=2),
                )
            except Exception:  # what ran in the whole model may not run alone; then there is nothing to learn here
                self._chance[id(pair)] = None
        runs = self._chance[id(pair)]
        return runs is not None and _disagree(read(runs[0], True), read(runs[1], True))

    def candidate_by_chance(self, pair: Pair, read: Reader) -> bool:
        """Return whether the candidate, run twice with other seeds, disagrees with itself here."""
        try:
            runs = [self.bench.run_candidate(pair, None, seed=seed) for seed in (1, 2)]
        except Exception:  # as above
            return False
        return _disagree(read(runs[0], False), read(runs[1], False))

    def _stochastic(self, pair: Pair, read: Reader, native: Difference) -> Ruling:
        figures = Figures(native.rel_l2, native.max_abs)
        text = "the reference disagrees with itself under another seed; what follows was fed its recorded value"
        return Ruling(Verdict.STOCHASTIC, figures, (text,))

    def _casts(self, pair: Pair, read: Reader) -> bool:
        """Return whether a side rounds to a narrower type inside: a tiny disturbance does not pass through it."""
        runs = self.runs(pair, "float64")
        if runs.reference is None:
            return False
        try:
            disturbed = self.bench.run_reference(pair, "float64", jitter=_JITTER)
        except Exception:  # as above
            return False
        ours, moved = read(runs.reference, True), read(disturbed, True)
        if ours is None or moved is None:
            return False
        change = difference(ours, moved).rel_l2
        return not _JITTER * 1e-2 < change < _JITTER * 1e3


def _disagree(a: Array | None, b: Array | None) -> bool:
    return a is not None and b is not None and difference(a, b).rel_l2 > 1e-3


def _zeros_for_missing(a: Array | None, b: Array | None) -> tuple[Array | None, Array | None]:
    if a is None and b is not None:
        return np.zeros_like(b), b
    if b is None and a is not None:
        return a, np.zeros_like(a)
    return a, b
