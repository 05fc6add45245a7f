"""Specify that what an adapter does not offer is refused, and never done wrongly in silence."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pytest

import padiff
from padiff.errors import InputError, LiftError, NotOffered
from padiff.testing._harness import Harness, lacks, randoms


class RefusalTests(Harness):
    """Refuse what is not offered, each with a hint; padiff.diff does without it, and says so."""

    feature: ClassVar[str] = "refusals"

    @lacks("gradients")
    def test_without_gradients_nothing_is_differentiable(self) -> None:
        """No tensor is differentiable, and a hook on a gradient is NotOffered."""
        tensor = self.adapter.tensor(self.native(randoms(3), differentiable=True))
        assert not tensor.differentiable
        with pytest.raises(NotOffered, match=r"gradients(.|\n)*Hint"):
            tensor.on_gradient(lambda gradient: None)
        parameter = self.held(self.wrap(self.linear(4, 3)), "", "weight").parameter
        assert parameter.gradient() is None
        with pytest.raises(NotOffered, match=r"gradients(.|\n)*Hint"):
            parameter.set_gradient(np.ones(parameter.shape, np.float32))

    @lacks("gradients")
    def test_without_gradients_a_diff_is_forward_only_and_says_so(self) -> None:
        """The default call compares forward with a note; asking for the backward pass is an InputError."""
        models, inputs = (self.linear(4, 3), self.linear(4, 3)), (randoms(5, 4),)
        report = padiff.diff(*models, inputs)
        assert report.aligned
        assert any("forward only" in note.text and self.name in note.text for note in report.notes)
        asked_for = padiff.diff(*models, inputs, phase="forward")
        assert not any("forward only" in note.text for note in asked_for.notes)
        for options in ({"phase": "backward"}, {"optimizers": (lambda: None, lambda: None)}):
            with pytest.raises(InputError, match=rf"{self.name}(.|\n)*gradients(.|\n)*Hint"):
                padiff.diff(*models, inputs, **options)

    @lacks("float64")
    def test_without_float64_lifting_is_refused(self) -> None:
        """lifted raises LiftError: padiff then rests on other evidence."""
        with pytest.raises(LiftError, match=r"float64(.|\n)*Hint"), self.wrap(self.linear(2, 2)).lifted("float64"):
            pass

    @lacks("in-place")
    def test_without_in_place_there_is_no_memory_to_write_to(self) -> None:
        """Tensors that never change offer no writable memory and have one version."""
        tensor = self.tensor(randoms(3))
        assert tensor.writable() is None
        assert tensor.version == 0

    @lacks("optimizers")
    def test_without_optimizers_only_functions_step(self) -> None:
        """No object is an optimizer; a plain function is called."""
        steps: list[int] = []
        function = lambda: steps.append(1)  # noqa: E731
        assert not self.adapter.is_optimizer(function)
        self.adapter.step(function)
        assert steps == [1]
        assert self.adapter.optimizer_settings(function) == {}

    @lacks("modes")
    def test_without_modes_no_module_is_in_training(self) -> None:
        """Where there are no modes, all modules say the same."""
        assert {module.training for module in self.wrap(self.linear(2, 2)).modules().values()} == {False}
