"""Compare what scripts record otherwise: other batches, weights, modules, optimizers, an evaluation between."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import padiff
from padiff.cli import main
from padiff.errors import InputError
from padiff.report import Phase
from padiff.testing.toy import columns, rows
from padiff.testing.toy import functional as F

from .test_compare import Net, Port, loop, pair, places


def both(tmp_path: Path, net: Any, port: Any, *, a: Any = (), b: Any = ()) -> padiff.Report:
    loop(net, tmp_path / "a", **dict(a))
    loop(port, tmp_path / "b", **dict(b))
    return padiff.compare(tmp_path / "a", tmp_path / "b")


@pytest.mark.parametrize("fault", ["", "glue"])
def test_what_was_not_kept_is_not_taken_for_equal(tmp_path: Path, fault: str) -> None:
    """Each parameter behind values that were not kept was a source, and the layer where they are known again."""
    net, port = pair(fault)
    report = both(tmp_path, net, port, a={"modules": "blocks.0*"}, b={"modules": "layers.0*"})
    assert places(report) == ([("", "forward")] if fault else []), str(report)
    assert report.coverage is not None
    assert report.coverage.missing


class Stacked(rows.Module):
    """Layers one behind the other, of which one side sends back half of the gradient."""

    def __init__(self) -> None:
        self.a, self.b, self.c, self.d = (rows.Linear(6, 6) for _ in range(4))

    def forward(self, x: Any) -> Any:
        return F.tanh(self.d(F.tanh(self.c(F.tanh(self.b(F.tanh(self.a(x))))))))


class Halved(columns.Layer):
    def __init__(self) -> None:
        self.a, self.b, self.c, self.d = (columns.Dense(6, 6) for _ in range(4))

    def forward(self, x: Any) -> Any:
        y = F.tanh(self.c(F.tanh(self.b(F.tanh(self.a(x))))))
        return F.tanh(self.d(y * 0.5 + columns.Tensor(y.data * 0.5)))


@pytest.mark.parametrize("modules", ["a", "b", "d"])
def test_a_fault_of_the_backward_pass_among_what_was_not_kept_is_one_source(tmp_path: Path, modules: str) -> None:
    net, port = Stacked(), Halved()
    padiff.diff(net, port, (np.zeros((2, 3, 6), np.float32),))
    report = both(tmp_path, net, port, a={"modules": modules}, b={"modules": modules})
    assert places(report) == [("", "backward")], str(report)


def test_a_setting_whose_effect_was_not_kept_is_not_called_without_effect(tmp_path: Path) -> None:
    net, port = pair("epsilon")
    report = both(tmp_path, net, port, a={"modules": "blocks.0*"}, b={"modules": "layers.0*"})
    assert "eps: 1e-05 in the reference, 0.0001 in the candidate; what it makes of it was not recorded" in str(report)


def test_tensors_are_compared_with_summaries(tmp_path: Path) -> None:
    """Weights that lie transposed had another shape, and an infinite error."""
    report = both(tmp_path, *pair(), a={"values": "summary"})
    assert report.aligned, str(report)
    assert "as far as summaries show" in str(report)


@pytest.mark.parametrize("values", ["tensors", "summary"])
def test_weights_that_were_never_copied_are_told_first(tmp_path: Path, values: str) -> None:
    np.random.seed(0)
    report = both(tmp_path, Net(), Port(), a={"values": values}, b={"values": values})
    assert {one.phase for one in report.sources} == {Phase.PARAMETER}, str(report)
    assert "padiff.transfer(reference_run, port)" in str(report).split("next")[1]


def test_another_number_of_rows_is_one_source(tmp_path: Path) -> None:
    net, port = pair()
    loop(net, tmp_path / "a")
    with padiff.record(port, tmp_path / "b") as recorder:
        y = port(columns.Tensor(np.ones((4, 3, 6), np.float32)))
        (y * y).mean().backward()
        recorder.step()
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    assert [one.cause.name for one in report.sources if one.cause] == ["inputs"], str(report)
    assert "was given x float32[5, 3, 6]" in str(report)
    assert "the same batches" in str(report).split("next")[1]


class Pooled(rows.Module):
    """Give a mean of all places, whose shape is the same however many there are."""

    def __init__(self) -> None:
        self.inner, self.out = rows.Linear(6, 8), rows.Linear(8, 3)

    def forward(self, x: Any) -> Any:
        return self.out(F.tanh(self.inner(x)).mean(1))


def test_inputs_of_other_lengths_are_one_source_where_outputs_have_one_shape(tmp_path: Path) -> None:
    """It was told at the first call of a module behind them, as if that were wrong."""
    net, port = Pooled(), Pooled()
    padiff.transfer(net, port)
    for name, model, length in (("a", net, 3), ("b", port, 4)):
        with padiff.record(model, tmp_path / name) as recorder:
            y = model(rows.Tensor(np.random.default_rng(0).standard_normal((5, length, 6), dtype=np.float32)))
            (y * y).mean().backward()
            recorder.step()
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    assert [str(one.cause) for one in report.sources] == ["the inputs themselves differ, in 'x'"], str(report)


MEANS, WIDTHS = np.array([0.1, 0.2, 0.4], np.float32), np.array([0.5, 0.6, 0.8], np.float32)


@pytest.mark.parametrize(
    ("order", "prepared", "said"),
    [
        ((0, 1, 2), lambda x: x, None),
        ((2, 1, 0), lambda x: x, "the reference was given the same in step 2: batches come in another order"),
        ((0, 1, 2), lambda x: x[:, :, ::-1], "reversed along axis 2"),
        ((0, 1, 2), lambda x: (x - MEANS) / WIDTHS, "each index of axis 2 is scaled and shifted by itself: 1.25 to 2"),
        ((0, 1, 2), lambda x: x * 2 - 1, "the candidate's is 2 times the reference's, -1"),
    ],
    ids=["same", "order", "reversed", "normalized", "scaled"],
)
def test_how_inputs_differ_is_told(tmp_path: Path, order: tuple[int, ...], prepared: Any, said: str | None) -> None:
    """Of two scripts that load their data themselves that is what is wrong first."""
    net, port = rows.Linear(3, 4), rows.Linear(3, 4)
    padiff.transfer(net, port)
    batches = np.random.default_rng(0).random((3, 5, 4, 3), dtype=np.float32)
    given = batches, [np.ascontiguousarray(prepared(batches[one])) for one in order]
    for name, model, data in zip("ab", (net, port), given, strict=True):
        with padiff.record(model, tmp_path / name) as recorder:
            for x in data:
                (model(rows.Tensor(x)) * 2).mean().backward()
                recorder.step()
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    assert [one.cause.name for one in report.sources if one.cause] == ["inputs"] * (said is not None), str(report)
    assert said is None or said in str(report)
    if order[0] == 0:
        fed = padiff.diff(net, port, (batches[0],), candidate_inputs=(given[1][0],))
        assert fed.aligned if said is None else said in str(fed), str(fed)


@pytest.mark.parametrize("used", [True, False])
def test_an_attacked_input_that_is_not_used_is_one_source(tmp_path: Path, used: bool) -> None:
    """To the clean one come the gradients of both calls then, which was a second source."""
    net, port = (rows.Sequential(rows.Linear(6, 6), rows.Tanh(), rows.Linear(6, 3)) for _ in range(2))
    padiff.transfer(net, port)
    for name, model, given in (("a", net, True), ("b", port, used)):
        with padiff.record(model, tmp_path / name) as recorder:
            x = rows.Tensor(np.random.default_rng(0).standard_normal((5, 6), dtype=np.float32), requires_grad=True)
            attacked = rows.Tensor(x.data + 0.1 * np.sign(x.data)) if given else x
            (model(x).mean() + (model(attacked) * 2).mean()).backward()
            recorder.step()
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    assert [str(one.cause) for one in report.sources] == ["the inputs themselves differ, in 'x'"] * (not used), str(
        report
    )


class Shifting(rows.Module):
    def __init__(self) -> None:
        self.mix = rows.Linear(6, 6)

    def forward(self, x: Any, more: Any, by: Any) -> Any:
        return self.mix(x) * by + more


@pytest.mark.parametrize(("told", "order", "factor"), [("x", (1, 0), 1), ("by", (0, 1), 2)])
def test_inputs_that_are_exchanged_are_no_other_batch(tmp_path: Path, told: str, order: Any, factor: int) -> None:
    """Nor is anything said of a single number that differs."""
    net, port = Shifting(), Shifting()
    padiff.transfer(net, port)
    both = [np.random.default_rng(seed).standard_normal((5, 6), dtype=np.float32) for seed in (0, 1)]
    number = np.array(0.5, np.float32)
    for name, model, given in (("a", net, (*both, number)), ("b", port, (*(both[i] for i in order), number * factor))):
        with padiff.record(model, tmp_path / name) as recorder:
            (model(*map(rows.Tensor, given)) * 2).mean().backward()
            recorder.step()
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    assert [str(one.cause) for one in report.sources] == [f"the inputs themselves differ, in '{told}'"], str(report)
    assert "batches come in another order" not in str(report)


class Reversing(rows.Module):
    """Two heads on one body; what the second sends back is turned round, by as much as it is told."""

    def __init__(self) -> None:
        self.body, self.one, self.two = rows.Linear(6, 8), rows.Linear(8, 3), rows.Linear(8, 2)

    def forward(self, x: Any, by: float) -> Any:
        y = F.tanh(self.body(x))
        kept = rows.Tensor(y.data * (1 + by))
        return self.one(y), self.two(kept - y * by)


@pytest.mark.parametrize("by", [0.5, 0.25])
def test_what_a_call_is_told_beside_its_tensors_is_evidence(tmp_path: Path, by: float) -> None:
    """Nor does a head send a wrong gradient that is sent none itself: of it nothing is used in the second call."""
    net, port = Reversing(), Reversing()
    padiff.transfer(net, port)
    for name, model, told in (("a", net, 0.5), ("b", port, by)):
        with padiff.record(model, tmp_path / name) as recorder:
            rng = np.random.default_rng(0)
            first, second = (rows.Tensor(rng.standard_normal((5, 6), dtype=np.float32)) for _ in range(2))
            y, z = model(first, told)
            ((y * y).mean() + (z * z).mean() + (model(second, told)[1] * 2).mean()).backward()
            recorder.step()
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    assert places(report) == ([("", "backward")] if by != 0.5 else []), str(report)
    assert ("the call is Reversing(_, 0.5) in the reference, Reversing(_, 0.25) in the" in str(report)) == (by != 0.5)


@pytest.mark.parametrize("factor", [0.5, 0.4])
def test_what_a_script_makes_of_an_earlier_call_is_told_as_that(tmp_path: Path, factor: float) -> None:
    """A sampler's own arithmetic is wrong, and no batch is another one."""
    net, port = rows.Linear(6, 6), rows.Linear(6, 6)
    padiff.transfer(net, port)
    for name, model, times in (("a", net, 0.5), ("b", port, factor)):
        with padiff.record(model, tmp_path / name) as recorder:
            x = rows.Tensor(np.random.default_rng(0).standard_normal((5, 6), dtype=np.float32))
            for _ in range(3):
                x = x - model(x) * times
            recorder.step()
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    assert report.aligned == (factor == 0.5), str(report)
    assert (
        ("(micro-batch 2)" in str(report))
        is ("what they make of what the model gave before" in str(report))
        is (factor != 0.5)
    )
    assert "the same batches" not in str(report)


def test_what_one_script_did_alone_is_noted(tmp_path: Path) -> None:
    net, port = pair()
    port.train(False)
    loop(net, tmp_path / "a", steps=3)
    with padiff.record(port, tmp_path / "b") as recorder:
        y = port(columns.Tensor(np.random.default_rng(1).standard_normal((5, 3, 6), dtype=np.float32)))
        (y * y).mean().backward()
        recorder.step()
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    assert report.aligned, str(report)
    assert {note.kind for note in report.notes} == {"modes_differ", "loss_of_one_side", "steps_of_one_side"}
    assert "the reference alone recorded steps 1, 2" in str(report)


def test_a_run_that_raised_in_its_first_step_can_be_recorded_again(tmp_path: Path) -> None:
    net, port = pair()
    loop(net, tmp_path / "a")
    with pytest.raises(TypeError), padiff.record(port, tmp_path / "b"):
        port(columns.Tensor(np.ones((5, 3, 6), np.float32)) + port)
    with pytest.raises(InputError, match="holds no recorded run"):
        padiff.compare(tmp_path / "a", tmp_path / "b")
    loop(net, tmp_path / "b")
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    assert report.aligned, str(report)


def test_a_run_that_was_killed_in_its_first_step_says_so(tmp_path: Path) -> None:
    net, _ = pair()
    loop(net, tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "b", ignore=shutil.ignore_patterns("step-*"))
    with pytest.raises(InputError, match=r"the candidate's run .* holds no finished step"):
        padiff.compare(tmp_path / "a", tmp_path / "b")
    with pytest.raises(InputError, match="holds no finished step"):
        padiff.graph(tmp_path / "a", tmp_path / "b")
    with pytest.raises(InputError, match="holds no finished step"):
        padiff.transfer(tmp_path / "b", net)


def test_a_run_that_is_compared_with_itself_is_noted(tmp_path: Path) -> None:
    net, _ = pair()
    loop(net, tmp_path / "a")
    report = padiff.compare(tmp_path / "a", tmp_path / "a")
    assert any("same recorded run" in note.text for note in report.notes if note.kind == "same_run"), str(report)


def test_options_that_a_function_lacks_are_suggested(tmp_path: Path) -> None:
    net, port = pair()
    with pytest.raises(TypeError, match=r"compare\(\) has no option 'atol'.\nHint: it is part of the tolerance: tol"):
        padiff.compare(tmp_path, tmp_path, atol=1e-3)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"record\(\) has no option 'value'.\nHint: did you mean values=\?"):
        padiff.record(net, tmp_path / "a", value="summary")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"transfer\(\) has no option 'atol'.\nHint: there are mapping="):
        padiff.transfer(net, port, atol=1e-3)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"'candidate'.\nHint: graph\(reference, candidate\)"):
        padiff.graph(tmp_path)  # type: ignore[call-arg]


def test_models_are_not_compared_as_runs(tmp_path: Path, capsys: Any) -> None:
    net, port = pair()
    with pytest.raises(InputError, match=r"Net; expected the directory.*\nHint: padiff.diff\("):
        padiff.compare(net, port)
    assert main(["compare", "my_port:build", str(tmp_path)]) == 2
    assert "is compared with `padiff diff`" in capsys.readouterr().err


def test_a_checksum_is_nothing_to_record(tmp_path: Path) -> None:
    net, _ = pair()
    with pytest.raises(InputError, match="one of 'tensors', 'sketch', 'summary', 'structure'"):
        padiff.record(net, tmp_path / "a", values="checksum")  # type: ignore[arg-type]


def test_a_single_model_is_told_of_no_option_of_two(tmp_path: Path, capsys: Any) -> None:
    this = "tests.toy.test_compare"
    assert main(["record", f"{this}:Net", "--inputs", f"{__name__}:misnamed", "-o", str(tmp_path / "a")]) == 2
    said = capsys.readouterr().err
    assert "given were the keywords 'image'" in said
    assert "by position, with --inputs." in said
    assert main(["record", f"{this}:Net", "--inputs", f"{this}:inputs", "-o", str(tmp_path / "a")]) == 0
    assert main(["show", str(tmp_path / "a"), "--module", "blocks.0.upp"]) == 2
    assert "did you mean 'blocks.0.up'?" in capsys.readouterr().err


def misnamed() -> Any:
    return {"image": np.ones((5, 3, 6), np.float32)}


class Adam:
    """The optimizer that divides a gradient by its size: what is rounding alone makes a whole step."""

    def __init__(self, model: Any, beta: float = 0.999) -> None:
        self.parameters = list(model.parameters())
        self.beta, self.time = beta, 0
        self.state = [(np.zeros_like(one.data), np.zeros_like(one.data)) for one in self.parameters]

    def step(self) -> None:
        self.time += 1
        for index, one in enumerate(self.parameters):
            mean, square = self.state[index]
            mean = 0.9 * mean + 0.1 * one.grad
            square = self.beta * square + (1 - self.beta) * one.grad**2
            self.state[index] = mean, square
            root = np.sqrt(square / (1 - self.beta**self.time)) + 1e-8
            one.data[...] -= np.float32(1e-3) * mean / (1 - 0.9**self.time) / root

    def clear(self) -> None:
        for one in self.parameters:
            one.grad = None


@pytest.mark.parametrize("beta", [0.999, 0.99])
def test_another_beta_shows_in_the_second_step(tmp_path: Path, beta: float) -> None:
    """The bound allowed for elements that are rounding alone, and let it pass: those are known by their gradients."""
    net, port = pair()
    loop(net, tmp_path / "a", Adam(net), 4)
    loop(port, tmp_path / "b", Adam(port, beta), 4)
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    expected = set() if beta == 0.999 else {(Phase.UPDATE, 1)}
    assert {(one.phase, one.step) for one in report.sources} == expected, str(report)
    assert report.aligned is not expected


class Keyed(rows.Module):
    """An attention whose keys have a bias: softmax cancels it, and rounding is all of its gradient."""

    def __init__(self) -> None:
        self.q, self.k, self.v = (rows.Linear(6, 6) for _ in range(3))

    def forward(self, x: Any) -> Any:
        return F.attention(self.q(x), self.k(x), self.v(x), 2)


class PortOfKeyed(columns.Layer):
    def __init__(self) -> None:
        self.q, self.k, self.v = (columns.Dense(6, 6) for _ in range(3))

    def forward(self, x: Any) -> Any:
        return F.attention(self.q(x), self.k(x * 2.0) * 0.5 + self.k(x) - self.k(x), self.v(x), 2)


class Packed(rows.Module):
    """The same, with one layer."""

    def __init__(self) -> None:
        self.qkv = rows.Linear(6, 18)

    def forward(self, x: Any) -> Any:
        y = self.qkv(x)
        return F.attention(y[..., :6], y[..., 6:12], y[..., 12:], 2)


class PortOfPacked(columns.Layer):
    def __init__(self) -> None:
        self.qkv = columns.Dense(6, 18)

    def forward(self, x: Any) -> Any:
        y = self.qkv(x)
        k = y[..., 6:12]
        return F.attention(y[..., :6], k * 3.0 - k * 2.0, y[..., 12:], 2)


@pytest.mark.parametrize("values", ["tensors", "sketch"])
@pytest.mark.parametrize(("model", "ported"), [(Keyed, PortOfKeyed), (Packed, PortOfPacked)])
def test_a_step_of_rounding_alone_is_no_fault(tmp_path: Path, model: Any, ported: Any, values: Any) -> None:
    """Some of its elements agree by chance in one step, and never did in those before."""
    net, port = model(), ported()
    padiff.diff(net, port, (np.zeros((5, 3, 6), np.float32),), phase="forward")
    if model is Keyed:
        port.k.offset.data[...] = net.k.bias.data[...] = 0
    loop(net, tmp_path / "a", Adam(net), 4, values=values)
    loop(port, tmp_path / "b", Adam(port), 4, values=values)
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    assert not [one for one in report.findings if one.phase is Phase.UPDATE], str(report)


@pytest.mark.parametrize("values", ["tensors", "sketch"])
@pytest.mark.parametrize("part", [slice(6), slice(12, 18)])
def test_a_step_beside_one_of_rounding_is_held_to_the_reference(tmp_path: Path, part: slice, values: Any) -> None:
    net, port = Packed(), PortOfPacked()
    padiff.diff(net, port, (np.zeros((5, 3, 6), np.float32),), phase="forward")
    loop(net, tmp_path / "a", Adam(net), 2, values=values)
    loop(port, tmp_path / "b", Turned(port, part), 2, values=values)
    (source,) = padiff.compare(tmp_path / "a", tmp_path / "b").sources
    assert (source.phase, source.step, source.candidate.path) == (Phase.UPDATE, 0, "qkv"), source


class Turned(Adam):
    """One that steps a part of a bias the other way round."""

    def __init__(self, model: Any, part: slice) -> None:
        super().__init__(model)
        self.part = part

    def step(self) -> None:
        for one in self.parameters:
            if one.data.shape == (18,):
                one.grad[self.part] *= -1
        super().step()


class Masked(rows.Module):
    """Code that makes a mask of its own and gives it to a module."""

    def __init__(self, number: float) -> None:
        self.first, self.inner, self.number = rows.Linear(6, 6), Scores(), number

    def forward(self, x: Any) -> Any:
        mask = np.triu(np.full((3, 3), self.number, np.float32), 1)
        return self.inner(self.first(x), type(x)(mask))


class Scores(rows.Module):
    def forward(self, x: Any, mask: Any) -> Any:
        return F.softmax(x @ x.transpose(0, 2, 1) + mask) @ x


@pytest.mark.parametrize(("number", "aligned"), [(-1e9, True), (-2.0, False)])
def test_a_mask_by_another_number_is_judged_by_what_it_does(tmp_path: Path, number: float, aligned: bool) -> None:
    np.random.seed(0)
    net = Masked(-1e4)
    np.random.seed(0)
    assert both(tmp_path, net, Masked(number)).aligned is aligned


def test_an_optimizer_that_never_steps_is_named(tmp_path: Path) -> None:
    net, port = pair()
    report = both(tmp_path, net, port, a={"optimizer": rows.SGD(net.parameters(), 0.1)})
    assert [one.cause.name for one in report.sources if one.cause] == ["not_stepped"], str(report)
    assert "the candidate's optimizer does not step" in str(report)


class Normed(rows.Module):
    def __init__(self) -> None:
        self.first, self.norm, self.head = rows.Linear(6, 8), rows.BatchNorm(8), rows.Linear(8, 4)

    def forward(self, x: Any) -> Any:
        return self.head(self.norm(self.first(x)))


class Biased(columns.Layer):
    """A port to a framework that tracks variances without Bessel's correction."""

    def __init__(self) -> None:
        self.first, self.norm, self.head = columns.Dense(6, 8), columns.BatchNormalization(8), columns.Dense(8, 4)

    def forward(self, x: Any) -> Any:
        before = self.norm.moving_variance.data.copy()
        y = self.norm(self.first(x))
        if self.training:
            kept = before * self.norm.keep
            self.norm.moving_variance.data[...] = kept + (self.norm.moving_variance.data - kept) * (14 / 15)
        return self.head(y)


@pytest.mark.parametrize("within", [True, False])
@pytest.mark.parametrize("values", ["tensors", "summary", "sketch"])
def test_running_variances_may_differ_by_convention_step_after_step(tmp_path: Path, values: str, within: bool) -> None:
    """From the second step on each was a source, as was the layer in an evaluation between the steps, or in one."""
    net, port = Normed(), Biased()
    padiff.diff(net, port, (np.random.default_rng(0).standard_normal((15, 6), dtype=np.float32),))
    rng = np.random.default_rng(1)
    batches = [rng.standard_normal((15, 6), dtype=np.float32) for _ in range(3)]
    for model, home, name in ((net, rows, "a"), (port, columns, "b")):
        with padiff.record(model, tmp_path / name, values=values) as recorder:
            for batch in batches:
                y = model(home.Tensor(batch))
                (y * y).mean().backward()
                if not within:
                    recorder.step()
                model.train(False)
                model(home.Tensor(batch))
                model.train(True)
                if within:
                    recorder.step()
                for parameter in model.parameters():
                    parameter.grad = None
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    assert report.aligned, str(report)
    assert "running_variance" in {note.kind for note in report.notes}


@pytest.mark.parametrize("fault", [False, True])
def test_statistics_may_be_averaged_anew_by_a_share_that_changes(tmp_path: Path, fault: bool) -> None:
    """As averaged weights get theirs: a right port was a source, and so were statistics that nothing changed then."""
    net, port = Normed(), Biased()
    padiff.diff(net, port, (np.random.default_rng(0).standard_normal((15, 6), dtype=np.float32),))
    rng = np.random.default_rng(1)
    batches = [rng.standard_normal((15, 6), dtype=np.float32) for _ in range(3)]
    for model, home, name in ((net, rows, "a"), (port, columns, "b")):
        with padiff.record(model, tmp_path / name) as recorder:
            for number, batch in enumerate(batches, 2):
                share = 1 / (number + (fault and name == "b"))
                if name == "a":
                    model.norm.momentum = share
                else:
                    model.norm.keep = 1 - share
                model(home.Tensor(batch))
            if name == "a":
                model.norm.momentum = 0.1
            model.train(False)
            model(home.Tensor(batches[0]))
            recorder.step()
            model.head(home.Tensor(np.ones((15, 8), np.float32)))
            recorder.step()
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    assert [(one.step, one.phase) for one in report.sources] == [(0, Phase.BUFFER)] * fault, str(report)


class Scaled(columns.Layer):
    """A port whose inside has the time first, with a fault where asked for."""

    def __init__(self, fault: str) -> None:
        self.one, self.two, self.fault = columns.Dense(6, 6), columns.Dense(6, 6), fault

    def forward(self, x: Any) -> Any:
        y = self.two(F.relu(self.one(x.transpose(1, 0, 2)))).transpose(1, 0, 2)
        return y * 1.5 if self.fault else y


class Plain(rows.Module):
    def __init__(self) -> None:
        self.a, self.b = rows.Linear(6, 6), rows.Linear(6, 6)

    def forward(self, x: Any) -> Any:
        return self.b(F.relu(self.a(x)))


@pytest.mark.parametrize("fault", ["", "scale"])
@pytest.mark.parametrize("mapping", [None, {"a": "one", "b": "two"}, {"a": "two", "b": "one"}])
def test_a_mapping_goes_with_another_order_of_axes(tmp_path: Path, mapping: Any, fault: str) -> None:
    net, port = Plain(), Scaled(fault)
    padiff.diff(net, port, (np.zeros((5, 3, 6), np.float32),), phase="forward")
    loop(net, tmp_path / "a")
    loop(port, tmp_path / "b")
    report = padiff.compare(tmp_path / "a", tmp_path / "b", mapping=mapping)
    if mapping is not None and mapping["a"] == "two":
        assert {one.phase for one in report.sources} == {Phase.PARAMETER}, str(report)
        assert {place for place, _ in places(report)} == {"one", "two"}
        return
    assert places(report) == ([("", "forward")] if fault else []), str(report)
    assert "axis_order" in {note.kind for note in report.notes}


class Twins(rows.Module):
    """Two branches, which the dataflow does not tell from each other."""

    def __init__(self) -> None:
        self.a, self.b = (rows.Sequential(rows.LayerNorm(6), rows.Linear(6, 6)) for _ in range(2))
        self.head = rows.Linear(6, 6)

    def forward(self, x: Any) -> Any:
        return self.head(self.a(x) + self.b(x))


class CrossedTwins(columns.Layer):
    """The same, called and listed the other way round; with a fault in one of them where asked for."""

    def __init__(self, factor: float = 1.0) -> None:
        self.one, self.two = (columns.Stack(columns.LayerNormalization(6), columns.Dense(6, 6)) for _ in range(2))
        self.last, self.factor = columns.Dense(6, 6), factor

    def forward(self, x: Any) -> Any:
        return self.last(self.one(x) * self.factor + self.two(x))


@pytest.mark.parametrize("factor", [1.0, 1.5])
def test_equal_norms_go_with_the_layers_beside_them(tmp_path: Path, factor: float) -> None:
    """Values tell which layer is which; the norms, equal as they began, stayed with the other branch's."""
    net, port = Twins(), CrossedTwins(factor)
    for branch, other in ((net.a, port.two), (net.b, port.one)):
        branch[0].weight.data[...] = other[0].gamma.data[...] = 1
        branch[0].bias.data[...] = other[0].beta.data[...] = 0
        other[1].kernel.data[...], other[1].offset.data[...] = branch[1].weight.data.T, branch[1].bias.data
    port.last.kernel.data[...], port.last.offset.data[...] = net.head.weight.data.T, net.head.bias.data
    loop(net, tmp_path / "a")
    loop(port, tmp_path / "b")
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    assert places(report) == ([] if factor == 1 else [("", "forward")]), str(report)
    found = {one.reference: one.candidate for one in report.mapping.modules}
    assert (found["a.0"], found["a.1"]) == ("two.0", "two.1")
