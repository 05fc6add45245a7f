"""Compare what comes by in a running model with the reference's, its gradients among it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import numpy as np

from padiff.adapter import Adapter, Tensor
from padiff.forcing._checks import Assess, Assessment, Check, Observed, Spot, Values
from padiff.numerics import Array, Difference, difference, numpy_dtype
from padiff.recording import Live, Watcher
from padiff.trace import ModuleRecord


class Comparer(Watcher):
    """A listener that compares values and gradients, and puts the reference's gradients in.

    Gradients of the reference's tokens in ``loose`` are neither compared nor put in.
    """

    def __init__(
        self,
        adapter: Adapter,
        force: Values,
        *,
        truth: Values | None = None,
        observed: Observed | None = None,
        loose: Collection[int] = (),
        gradients: bool,
        assess: Assess | None = None,
        live: Live | None = None,
        top: ModuleRecord | None = None,
    ) -> None:
        super().__init__(adapter, live, top)
        self.checks: list[Check] = []
        self._force = force
        self._truth = truth
        self._observed = observed
        self._gradients = gradients
        self._assess = assess
        self._awaited, self._graded = dict[int, Spot](), set(loose)

    def _await(self, spot: Spot, tensor: Tensor) -> None:
        expected = self._force.gradient(spot.reference)
        token = spot.candidate.token
        if expected is not None:
            self._awaited[token] = spot
        if not tensor.differentiable:
            return
        device = tensor.device

        def arrived(gradient: Tensor) -> Any | None:
            if self.running:
                return None
            self._awaited.pop(token, None)
            if self._check_gradient(spot, gradient.read, gradient.view):
                return None
            # Where none comes in the reference, what it is made of is not to get any either.
            fed = np.zeros(gradient.shape) if expected is None else expected
            return self.adapter.from_numpy(np.asarray(fed, dtype=numpy_dtype(gradient.dtype)), device=device)

        self.hooks.add(tensor.on_gradient(arrived).close)

    def _note(
        self, spot: Spot, backward: bool, apart: Difference, truth: Array, values: Callable[[], Array], **marks: Any
    ) -> None:
        """Record a value that is not the reference's, and what can only be told while both are at hand."""
        said = Assessment() if self._assess is None else self._assess(spot.owner, apart, truth, values())
        self.checks.append(Check(spot, backward, apart, close=said.close, measured=said.measured, **marks))

    def _check_gradient(self, spot: Spot, read: Callable[..., Any], values: Callable[[], Array]) -> bool:
        """Compare one gradient; return whether it is what will be put in, to the bit.

        ``read`` is as `Tensor.read`; ``values`` returns the gradient itself.
        """
        if self._observed is not None:
            self._observed.gradients.setdefault(spot.reference.token, np.array(values()))
        if self._truth is None:
            return False
        truth = self._truth.gradient(spot.reference)
        if truth is None:
            if not read(np.any):
                return True
            truth = np.zeros_like(values())
        apart = read(difference, truth)
        if not apart.equal:
            self._note(spot, True, apart, truth, values)
        return apart.equal and truth is self._force.gradient(spot.reference)
