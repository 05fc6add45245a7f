"""Specify what all this is for: padiff.diff of models in this framework gives the right answer."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest

import padiff
from padiff.errors import ForwardError
from padiff.report import Finding, Phase, Report
from padiff.testing import _models as models
from padiff.testing._harness import Harness, needs, randoms
from padiff.testing._state import fingerprint

FAULT = 1.01
"""A factor that a faulty twin's code has and the right one's has not."""


class AnswerTests(Harness):
    """Call clean pairs aligned, and name planted faults at their places."""

    feature: ClassVar[str] = "diff"

    def deep(self, factor: float = 1.0, *, at: str = "") -> Any:
        """Return a model of three levels; ``factor`` comes into the code of the module ``at`` a path."""

        def block(path: str) -> Any:
            mine = factor if path == at else 1.0

            def forward(made: Any, x: Any) -> Any:
                return made.last((made.first(x) * mine) * 0.5 + x)

            return forward

        def inner(path: str) -> Any:
            return self.module(block(path), first=self.linear(4, 4), last=self.linear(4, 4))

        blocks = {"one": inner("body.one"), "two": inner("body.two")}

        def body(made: Any, x: Any) -> Any:
            return made.two(made.one(x))

        def root(made: Any, x: Any) -> Any:
            return made.head(made.body(made.stem(x)))

        return self.module(root, stem=self.linear(3, 4), body=self.module(body, **blocks), head=self.linear(4, 2))

    def report(self, reference: Any, candidate: Any, *inputs: Any, **kwargs: Any) -> Report:
        """Compare two native models."""
        return padiff.diff(reference, candidate, inputs or (randoms(5, 3),), **kwargs)

    def only(self, report: Report) -> Finding:
        """Return the only source of a report."""
        assert len(report.sources) == 1, f"expected one source, and got:\n{report}"
        return report.sources[0]

    def aligned(self, report: Report) -> Report:
        """Return a report, which must say aligned."""
        assert report.aligned, f"expected the models to be aligned, and got:\n{report}"
        return report

    def test_a_model_and_its_twin_are_aligned(self) -> None:
        """Two models of one class with other weights compute the same once the weights are transferred, all of them."""
        reference, candidate = self.deep(), self.deep()
        before = fingerprint(self.wrap(reference))
        weights = [self.canonical(self.wrap(model), "head", "weight") for model in (reference, candidate)]
        assert (weights[0] != weights[1]).any(), "linear() must give random weights, so that a transfer shows"
        report = self.aligned(self.report(reference, candidate))
        assert report.transfer is not None
        assert report.transfer.verified == report.transfer.copied == len(self.wrap(candidate).parameters())
        assert report.output is not None
        assert report.output.rel_l2 == 0
        assert fingerprint(self.wrap(reference)) == before, "the reference must come back as it was"
        if "gradients" in self.adapter.capabilities:
            assert not any("forward only" in note.text for note in report.notes)

    def test_a_model_is_aligned_with_itself_twice(self) -> None:
        """One and the same object may stand on both sides, and a second diff gives the same answer."""
        native = self.deep()
        first = self.aligned(self.report(native, native))
        assert self.aligned(self.report(native, native)).counts == first.counts

    @pytest.mark.parametrize("path", ["body.one", "body.two"])
    def test_a_fault_in_a_modules_own_code_is_named_there(self, path: str) -> None:
        """A factor between two children of a nested module is found in that module, between those children."""
        source = self.only(self.report(self.deep(), self.deep(FAULT, at=path)))
        assert (source.reference.path, source.candidate.path) == (path, path)
        assert source.between == ("first", "last")
        assert source.phase is Phase.FORWARD
        file = str(source.candidate.location).rpartition(":")[0]
        assert file == __file__, f"located in {source.candidate.location}: see Adapter.machinery and library"

    def test_several_faults_are_all_named(self) -> None:
        """Every call is fed from the reference, so that one fault does not hide another."""
        wrong = self.deep(FAULT, at="body.one")
        wrong.body.two = self.deep(FAULT, at="body.two").body.two
        report = self.report(self.deep(), wrong)
        assert [source.candidate.path for source in report.sources] == ["body.one", "body.two"]

    def test_a_fault_inside_a_leaf_is_named_there(self) -> None:
        """A module that computes something else than its namesake is the source, not the one around it."""

        def wrong(made: Any, x: Any) -> Any:
            return made.first(x) + 0.01

        def model(forward: Any) -> Any:
            inner = self.module(forward, first=self.linear(4, 4))
            return self.module(models.chain, first=self.linear(3, 4), second=inner)

        source = self.only(self.report(model(models.one), model(wrong)))
        assert source.candidate.path == "second"

    def test_parameters_are_compared_where_they_are_not_transferred(self) -> None:
        """With transfer=False a parameter with another value is named by path."""
        reference, candidate = self.deep(), self.deep()
        self.report(reference, candidate)
        held = self.held(self.wrap(candidate), "body.two.first", "bias")
        held.parameter.assign(np.array(held.parameter.view()) + 1)
        report = self.report(reference, candidate, transfer=False)
        assert not report.aligned
        assert [source.phase for source in report.sources] == [Phase.PARAMETER]
        assert report.sources[0].candidate.path == "body.two.first"

    def test_keywords_and_nested_outputs_are_compared(self) -> None:
        """Inputs by name reach forward by name; what lies in containers is compared, and a fault in it is found."""

        def forward(factor: float) -> Any:
            def made(made: Any, *, x: Any, extra: Any) -> Any:
                hidden = made.first(x)
                return {"hidden": hidden, "more": [None, models.Pair(made.second(hidden) * factor, extra["shift"] + x)]}

            return made

        def model(factor: float = 1.0) -> Any:
            return self.module(forward(factor), first=self.linear(3, 4), second=self.linear(4, 2))

        inputs = {"x": randoms(5, 3), "extra": {"shift": randoms(5, 3, seed=1)}}
        self.aligned(padiff.diff(model(), model(), inputs))
        source = self.only(padiff.diff(model(), model(FAULT), inputs))
        assert source.candidate.path == ""
        assert source.between == ("second", "end")

    def test_a_shared_module_is_compared_at_every_call(self) -> None:
        """A module that is called twice is compared twice; a fault between its calls lies in the code around them."""

        def forward(factor: float) -> Any:
            return lambda made, x: made.first(made.first(x) * factor)

        def model(factor: float = 1.0) -> Any:
            return self.module(forward(factor), first=self.linear(3, 3))

        self.aligned(self.report(model(), model()))
        assert self.only(self.report(model(), model(FAULT))).candidate.path == ""

    def test_an_error_of_the_model_names_the_module(self) -> None:
        """A model that raises is a ForwardError with the module's path and line, and both models come back."""

        def fail(made: Any, x: Any) -> Any:
            msg = "mine"
            raise ZeroDivisionError(msg)

        def model() -> Any:
            return self.module(models.chain, first=self.linear(3, 3), second=self.module(fail))

        reference, candidate = model(), model()
        before = fingerprint(self.wrap(reference))
        with pytest.raises(ForwardError, match=r"second(.|\n)*mine(.|\n)*Hint") as caught:
            self.report(reference, candidate)
        assert isinstance(caught.value.__cause__, ZeroDivisionError)
        assert f"{__file__}:" in str(caught.value)
        assert fingerprint(self.wrap(reference)) == before

    @needs("in-place")
    def test_code_that_works_in_place_is_compared(self) -> None:
        """A change in place is compared like any other: clean it is aligned, faulty it is named."""
        suite = self

        def forward(number: float) -> Any:
            def made(made: Any, x: Any) -> Any:
                hidden = made.first(x)
                suite.add_in_place(hidden, number)
                return made.second(hidden)

            return made

        def model(number: float = 1.0) -> Any:
            return self.module(forward(number), first=self.linear(3, 4), second=self.linear(4, 2))

        self.aligned(self.report(model(), model()))
        source = self.only(self.report(model(), model(1.05)))
        assert (source.candidate.path, source.between) == ("", ("first", "second"))

    @needs("gradients")
    def test_a_fault_of_the_backward_pass_alone_is_named(self) -> None:
        """A model that computes the right values and sends another gradient is found, with the place of the code."""

        def forward(factor: float) -> Any:
            def made(made: Any, x: Any) -> Any:
                hidden = made.first(x)
                if factor != 1.0 and self.adapter.tensor(hidden).differentiable:
                    self.adapter.tensor(hidden).on_gradient(lambda gradient: gradient.native * factor)
                return made.second(hidden)

            return made

        def model(factor: float = 1.0) -> Any:
            inner = self.module(forward(factor), first=self.linear(4, 4), second=self.linear(4, 4))
            return self.module(models.chain, first=self.linear(3, 4), second=inner)

        self.aligned(self.report(model(), model()))
        source = self.only(self.report(model(), model(1.5)))
        assert source.phase is Phase.BACKWARD
        assert source.candidate.path in ("second", "second.first")

    @needs("buffers")
    def test_running_statistics_are_compared(self) -> None:
        """Buffers are transferred, compared after the run, and put back."""

        def model() -> Any:
            return self.module(models.chain, first=self.linear(3, 4), second=self.batch_norm(4))

        reference, candidate = model(), model()
        before = fingerprint(self.wrap(reference))
        self.aligned(self.report(reference, candidate, randoms(6, 3)))
        assert fingerprint(self.wrap(reference)) == before

    @needs("randomness")
    def test_chance_is_no_fault(self) -> None:
        """An active dropout is no source, and what follows it is compared all the same."""

        def forward(factor: float) -> Any:
            return lambda made, x: made.last(made.drop(made.first(x)) * factor)

        def model(factor: float = 1.0) -> Any:
            children = {"first": self.linear(3, 8), "drop": self.dropout(0.5), "last": self.linear(8, 2)}
            return self.module(forward(factor), **children)

        self.aligned(self.report(model(), model()))
        assert self.only(self.report(model(), model(FAULT))).between == ("drop", "last")

    @needs("optimizers", "gradients")
    def test_optimizers_are_compared_step_by_step(self) -> None:
        """Two optimizers that do the same are aligned over steps; another learning rate is named with both values."""

        def steps(lr: float) -> Report:
            reference, candidate = self.deep(), self.deep()
            optimizers = self.sgd(reference, 0.1), self.sgd(candidate, lr)
            return self.report(reference, candidate, optimizers=optimizers, steps=2)

        self.aligned(steps(0.1))
        report = steps(0.2)
        assert {source.phase for source in report.sources} == {Phase.UPDATE}
        cause = str(report.sources[0].cause)
        assert "lr" in cause
        assert "0.1" in cause
        assert "0.2" in cause
