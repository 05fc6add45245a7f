"""Compare a recorded run that casts what its layers compute with one that does not: only rounding differs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import padiff
from padiff.testing.toy import functional, rows

SIZE = 16


def cast(x: Any, dtype: Any) -> Any:
    """Return a tensor in another type; its gradient comes in that, and goes on in its own."""
    return type(x)(x.data.astype(dtype), sources=[(x, lambda g: g.astype(dtype).astype(x.data.dtype))])


class Layer(rows.Linear):
    """A linear layer that rounds what it takes and gives, as automatic casts do."""

    low, parts = True, 1

    def forward(self, x: Any) -> Any:
        if not self.low:
            return super().forward(x)
        short = cast(cast(x, ml_dtypes.bfloat16), np.float32)
        weight = cast(cast(self.weight, ml_dtypes.bfloat16), np.float32).transpose(1, 0)
        if self.parts == 1:
            return cast(functional.linear(short, weight, self.bias), ml_dtypes.bfloat16)
        half = SIZE // 2  # a kernel that keeps its sum in the narrow type
        first, second = (
            cast(cast(short[:, a:b] @ weight[a:b], ml_dtypes.bfloat16), np.float32)
            for a, b in ((0, half), (half, None))
        )
        return cast(first + second + self.bias, ml_dtypes.bfloat16)


class Wide(Layer):
    """A layer whose product alone is cast, as MindSpore's automatic casts do: with its bias it looks like float32."""

    def forward(self, x: Any) -> Any:
        if not self.low:
            return rows.Linear.forward(self, x)
        short, weight = (cast(cast(one, self.dtype), np.float32) for one in (x, self.weight))
        return cast(cast(short @ weight.transpose(1, 0), self.dtype), np.float32) + self.bias

    dtype: Any = np.float16


class Block(rows.Module):
    """A residual block: what it adds up, and what norms make of it, is never cast."""

    def __init__(self) -> None:
        self.norm, self.up, self.down = rows.LayerNorm(SIZE), Layer(SIZE, 32), Layer(32, SIZE)
        self.scale = np.float32(1)

    def forward(self, x: Any) -> Any:
        inner = cast(functional.gelu(cast(self.up(self.norm(x)), np.float32)), np.float32)
        return x + cast(self.down(inner), np.float32) * self.scale


class Ones(rows.Module):
    """A mask that drops nothing, which any type holds exactly."""

    dtype: Any = np.float32

    def forward(self, x: Any) -> Any:
        return cast(type(x)(np.ones_like(x.data)), self.dtype)


class Net(rows.Module):
    """Blocks, a norm, and a head."""

    def __init__(self, *, low: bool) -> None:
        self.blocks = rows.Sequential(*(Block() for _ in range(4)))
        self.norm, self.head, self.mask = rows.LayerNorm(SIZE), Layer(SIZE, 4), Ones()
        for block in self.blocks:
            block.up.low = block.down.low = low
        self.head.low = low

    def forward(self, x: Any) -> Any:
        return cast(self.head(self.norm(self.blocks(x * cast(self.mask(x), np.float32)))), np.float32)


def compared(
    folder: Path,
    *,
    low: tuple[bool, bool] = (False, True),
    seed: int = 0,
    fault: str = "",
    mask: Any = np.float32,
    parts: int = 1,
) -> padiff.Report:
    np.random.seed(seed)
    models = Net(low=low[0]), Net(low=low[1])
    for one in models[1].blocks:
        one.up.parts = one.down.parts = parts
    models[1].mask.dtype = mask
    rng = np.random.default_rng(seed)
    padiff.transfer(*models, rng.standard_normal((5, SIZE)).astype(np.float32))
    block = models[1].blocks[2]
    if fault == "scale":
        block.scale = np.float32(1.5)
    if fault == "small":
        block.scale = np.float32(1.02)
    if fault == "ever more":
        for one, off in zip(models[1].blocks, (1e-5, 2e-4, 4e-3, 8e-3), strict=True):
            one.scale = np.float32(1 + off)
    if fault == "eps":
        block.norm.eps = 0.5
    given = [rng.standard_normal((32, SIZE)).astype(np.float32) for _ in range(3)]
    for model, name in zip(models, "ab", strict=True):
        optimizer = rows.SGD(model.parameters(), 0.01)
        with padiff.record(model, folder / name, optimizer=optimizer) as recorder:
            for x in given:
                out = model(rows.Tensor(x.copy()))
                loss = (out * out).mean()
                for one in model.parameters() if fault == "penalty" and name == "b" else ():
                    loss = loss + (one * one).sum() * np.float32(0.01)
                loss.backward()
                optimizer.step()
                optimizer.clear()
                recorder.step()
    return padiff.compare(folder / "a", folder / "b")


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("low", [(False, True), (True, False)])
def test_casts_of_one_side_are_no_fault(tmp_path: Path, low: tuple[bool, bool], seed: int) -> None:
    report = compared(tmp_path, low=low, seed=seed)
    assert report.aligned, str(report)
    (note,) = (note for note in report.notes if note.kind == "unlike_casts")
    assert {note.data["reference"], note.data["candidate"]} == {"float32", "bfloat16"}
    assert note.data["modules"][0] == "blocks.0.up"
    assert "a loss that sends up to 0.0078 more in the mean" in str(report)


class Table(rows.Embedding):
    """A table whose rows may be scaled."""

    times = np.float32(1)

    def forward(self, ids: Any) -> Any:
        return super().forward(ids) * self.times


class Hidden(rows.Module):
    """Layers that give float32 whatever they compute in, and norms that do compute in it."""

    def __init__(self, dtype: Any = np.float32, fault: str = "") -> None:
        self.table = Table(20, SIZE)
        self.table.times = np.float32(1.002 if fault == "table" else 1)
        self.layers, self.norms = (rows.Sequential(*(one(SIZE, SIZE) for _ in range(3))) for one in (Wide, _normed))
        for layer in self.layers:
            layer.low, layer.dtype = dtype != np.float32, dtype
        self.norms[1].eps = 0.5 if fault == "eps" else 1e-5
        self.share = np.float32(1.1 if fault == "share" else 1)

    def forward(self, ids: Any) -> Any:
        x = self.table(ids)
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = x + layer(norm(x)) * (self.share if layer is self.layers[1] else np.float32(1))
        return x


def _normed(size: int, _: int) -> rows.Module:
    return rows.LayerNorm(size)


def hidden(folder: Path, dtypes: tuple[Any, Any], fault: str = "", values: Any = "tensors") -> padiff.Report:
    np.random.seed(0)
    models = Hidden(dtypes[0]), Hidden(dtypes[1], fault)
    for one, other in zip(*(model.parameters() for model in models), strict=True):
        other.data[...] = one.data
    for model, name in zip(models, "ab", strict=True):
        optimizer, rng = rows.SGD(model.parameters(), 0.01), np.random.default_rng(1)
        with padiff.record(model, folder / name, optimizer=optimizer, values=values) as recorder:
            for _ in range(3):
                out = model(rng.integers(0, 20, 32))
                loss = ((out - rng.standard_normal((32, SIZE), dtype=np.float32)) * out).mean()
                loss.backward()
                optimizer.step()
                optimizer.clear()
                recorder.step(float(loss.data))
    return padiff.compare(folder / "a", folder / "b")


@pytest.mark.parametrize("values", ["tensors", "summary", "sketch"])
@pytest.mark.parametrize("dtypes", [(np.float32, np.float16), (ml_dtypes.bfloat16, np.float32)])
def test_layers_that_cast_inside_and_give_float32_are_no_fault(
    tmp_path: Path, dtypes: tuple[Any, Any], values: str
) -> None:
    """The type of what they give was taken for that in which they compute: the first layer was a source."""
    report = hidden(tmp_path, dtypes, values=values)
    assert report.aligned, str(report)
    (note,) = (note for note in report.notes if note.kind == "unlike_casts")
    assert note.data["modules"] == [f"layers.{n}" for n in range(3)], note
    assert [note.data["reference"], note.data["candidate"]] == [np.dtype(one).name for one in dtypes]


@pytest.mark.parametrize(("fault", "path"), [("table", "table"), ("eps", "norms.1"), ("share", "")])
@pytest.mark.parametrize("dtypes", [(np.float32, np.float16), (np.float16, np.float16), (np.float16, np.float32)])
def test_what_casts_inside_of_layers_excuses_no_fault_elsewhere(
    tmp_path: Path, dtypes: tuple[Any, Any], fault: str, path: str
) -> None:
    sources = hidden(tmp_path, dtypes, fault).sources
    assert [one.candidate.path for one in sources] == [path], sources


@pytest.mark.parametrize(("fault", "path"), [("scale", "blocks.2"), ("eps", "blocks.2.norm")])
def test_a_fault_behind_casts_of_one_side_is_found(tmp_path: Path, fault: str, path: str) -> None:
    report = compared(tmp_path, fault=fault)
    first = next(one for one in report.findings if one.counts)
    assert (first.step, first.candidate.path) == (0, path), str(report)


@pytest.mark.parametrize("low", [(False, True), (True, False)])
def test_a_penalty_beside_casts_of_one_side_is_one_source(tmp_path: Path, low: tuple[bool, bool]) -> None:
    """What the casts round in a gradient was more than a multiple of weights may be off by: each was a source."""
    (source,) = compared(tmp_path, low=low, fault="penalty").sources
    assert (source.cause.name, source.cause.parameters["side"]) == ("penalty", "candidate"), source


def test_what_both_sides_cast_excuses_no_small_fault(tmp_path: Path) -> None:
    assert compared(tmp_path / "right", low=(True, True)).aligned
    (source,) = compared(tmp_path, low=(True, True), fault="small").sources
    assert source.candidate.path == "blocks.2"


@pytest.mark.parametrize("fault", ["", "scale", "eps"])
def test_kernels_that_round_one_type_apart_are_no_fault(tmp_path: Path, fault: str) -> None:
    """What norms in float32 make of it differed, and nothing was a source; a fault that is no rounding shows still."""
    report = compared(tmp_path, low=(True, True), parts=2, fault=fault)
    assert report.aligned is not bool(fault), str(report)


class Gated(rows.Module):
    """Layers between which a model's own code computes, all in a narrow type on a side that casts."""

    def __init__(self, *, low: bool, share: float = 1.0) -> None:
        self.ups, self.downs = (rows.Sequential(*(Layer(SIZE, SIZE) for _ in range(3))) for _ in range(2))
        for layer in (*self.ups, *self.downs):
            layer.low = low
        self.dtype = ml_dtypes.bfloat16 if low else np.float32
        self.shares = [np.float32(1), np.float32(share), np.float32(1)]

    def forward(self, x: Any) -> Any:
        x = cast(x, self.dtype)
        for up, down, share in zip(self.ups, self.downs, self.shares, strict=True):
            inner = functional.gelu(cast(up(x), np.float32)) * share
            x = cast(cast(x, np.float32) + cast(down(cast(inner, self.dtype)), np.float32), self.dtype)
        return cast(x, np.float32)


@pytest.mark.parametrize("share", [1.0, 1.18])
@pytest.mark.parametrize("low", [(True, True), (False, True), (True, False)])
def test_code_in_a_narrow_type_is_off_by_a_few_of_its_epsilons_alone(
    tmp_path: Path, low: tuple[bool, bool], share: float
) -> None:
    """Another activation, a fifth off, was rounding: as free runs of whole models may be apart."""
    np.random.seed(0)
    models = Gated(low=low[0]), Gated(low=low[1], share=share)
    for one, other in zip(*(model.parameters() for model in models), strict=True):
        other.data[...] = one.data
    for model, name in zip(models, "ab", strict=True):
        rng = np.random.default_rng(1)
        with padiff.record(model, tmp_path / name) as recorder:
            out = model(rows.Tensor(rng.standard_normal((32, SIZE), dtype=np.float32)))
            (out * rng.standard_normal((32, SIZE), dtype=np.float32)).mean().backward()
            recorder.step()
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    told = [(one.what.kind, one.reference.path, one.cause) for one in report.sources]
    assert report.aligned is (share == 1), str(report)
    assert told == [("input", "", None)] * (share != 1), told


def test_a_cast_that_rounds_nothing_excuses_no_fault_behind_it(tmp_path: Path) -> None:
    """A fault that begins below what a leap is, and grows from block to block: the bound of float32 alone finds it."""
    exact = {"low": (False, False), "mask": ml_dtypes.bfloat16}
    assert compared(tmp_path / "right", **exact).aligned
    report = compared(tmp_path, **exact, fault="ever more")
    assert not report.aligned, str(report)


@pytest.mark.parametrize(
    ("momentum", "rate", "cause"),
    [(0.9, 0.01, []), (0.0, 0.01, ["momentum"]), (0.8, 0.01, ["momentum"]), (0.9, 0.0105, ["lr"])],
)
def test_a_step_that_casts_do_not_explain_is_found_in_whatever_step(
    tmp_path: Path, momentum: float, rate: float, cause: list[str]
) -> None:
    """Behind the first step none was judged, since all gradients are apart by rounding: one without momentum passed.

    A rate that is a little off makes steps as many times as long, whichever way rounding turns them.
    """
    np.random.seed(0)
    models = Net(low=False), Net(low=True)
    for ours, theirs in zip(*(model.parameters() for model in models), strict=True):
        theirs.data[...] = ours.data
    for model, name, own, lr in zip(models, "ab", (0.9, momentum), (0.01, rate), strict=True):
        optimizer, rng = rows.SGD(model.parameters(), lr, own), np.random.default_rng(1)
        with padiff.record(model, tmp_path / name) as recorder:
            for _ in range(3):
                y = model(rows.Tensor(rng.standard_normal((8, SIZE), dtype=np.float32)))
                (y * y).mean().backward()
                optimizer.step()
                optimizer.clear()
                recorder.step()
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    assert [(one.step, list(one.cause.parameters)) for one in report.sources] == (
        [(int(cause == ["momentum"]), cause)] if cause else []
    ), str(report)
    assert report.aligned is not bool(cause)
    assert "as far as bfloat16 shows" in str(report).splitlines()[0]


@pytest.mark.parametrize("off", [0.0, 0.01, 0.1])
def test_a_loss_that_sends_other_gradients_to_equal_coarse_outputs_is_a_source(tmp_path: Path, off: float) -> None:
    """Values of a coarse type are taken for one up to a quarter of their size: from equal outputs less does."""
    np.random.seed(0)
    layer = Layer(SIZE, SIZE)
    for name, share in (("a", 0.0), ("b", off)):
        signs = rows.Tensor(np.where(np.arange(SIZE) % 2, 1 + share, 1 - share).astype(np.float32))
        with padiff.record(layer, tmp_path / name) as recorder:
            x = rows.Tensor(np.random.default_rng(1).standard_normal((8, SIZE), dtype=np.float32))
            out = cast(layer(x), np.float32)
            (out * signs).mean().backward()
            recorder.step()
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    assert [(one.what.kind, one.candidate.path) for one in report.sources] == (
        [("output_gradient", "")] if off == 0.1 else []
    ), str(report)


@pytest.mark.parametrize(
    ("limit", "hook"),
    [(np.inf, None), (0.01, None), (np.inf, "scaled"), (np.inf, "a row"), (0.01, "behind the step")],
)
def test_gradients_that_slices_round_each_add_up_to_theirs(tmp_path: Path, limit: float, hook: str | None) -> None:
    """Or that ranks do: from equal values a sum of what is rounded to a coarse type is as coarse as that.

    So is the norm of all, by which those that are not rounded are clipped, too. What a hook makes is no rounding.
    """
    row = np.ones((SIZE, 1), np.float32)
    row[3] = 0.88
    np.random.seed(0)
    models, rng = (Net(low=True), Net(low=True)), np.random.default_rng(1)
    for ours, theirs in zip(*(model.parameters() for model in models), strict=True):
        theirs.data[...] = ours.data
    batches = [rng.standard_normal((8, SIZE), dtype=np.float32) for _ in range(2)]
    weight = models[1].blocks[0].down.weight
    if hook in ("scaled", "a row"):
        factor = np.float32(0.98) if hook == "scaled" else row
        weight.step.hooks.append(lambda gradient: gradient * factor)
    for net, name, count in zip(models, "ab", (1, 2), strict=True):
        optimizer = rows.SGD(net.parameters(), 0.1)
        with padiff.record(net, tmp_path / name) as recorder:
            for batch in batches:
                for one in np.split(batch, count):
                    y = net(rows.Tensor(one))
                    ((y * y).mean() * np.float32(1 / count)).backward()
                norm = np.sqrt(sum(float((parameter.grad**2).sum()) for parameter in net.parameters()))
                for parameter in net.parameters():
                    parameter.grad = parameter.grad * np.float32(min(1.0, limit / norm))
                optimizer.step()
                optimizer.clear()
                if name == "b" and hook == "behind the step":
                    weight.data *= np.float32(0.999)
                recorder.step()
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    if hook == "behind the step":
        assert [(one.candidate.path, one.cause) for one in report.sources] == [("blocks.0.down", None)], str(report)
        return
    told = [] if hook is None else [("parameter_gradient", "blocks.0.down")]
    assert [(one.what.kind, one.candidate.path) for one in report.sources][:1] == told, str(report)


@pytest.mark.parametrize(
    ("off", "rows_", "near", "told"),
    [
        (0.0, 24, 8.0, ""),
        (0.1, 24, 8.0, "sent_alike"),
        (0.1, 6, 8.0, ""),
        (0.01, 96, 8.0, "sent_alike"),
        (np.linspace(-0.1, 0.1, 96)[:, None], 96, 8.0, "sent_by_row"),
        (0.0, 96, 0.02, ""),
        (0.1, 96, 0.02, "sent_alike"),
    ],
)
def test_a_loss_that_sends_less_in_the_mean_of_rows_is_no_rounding(
    tmp_path: Path, off: Any, rows_: int, near: float, told: str
) -> None:
    """Behind casts of one side a hundredth passed, and weights of rows; of few rows nothing is concluded.

    What a loss near its least sends is what outputs are apart, and was told as a difference.
    """
    np.random.seed(0)
    models = Net(low=False), Net(low=True)
    for one, other in zip(*(model.parameters() for model in models), strict=True):
        other.data[...] = one.data
    given = np.random.default_rng(1).standard_normal((rows_, SIZE), dtype=np.float32)
    wanted = near * np.random.default_rng(2).standard_normal((rows_, 4), dtype=np.float32)
    wanted += models[0](rows.Tensor(given)).data if near < 1 else 0
    for model, name, share in zip(models, "ab", (0.0, off), strict=True):
        with padiff.record(model, tmp_path / name) as recorder:
            out = model(rows.Tensor(given))
            loss = ((out - wanted) * (out - wanted) * np.asarray(1 - share, np.float32)).mean()
            loss.backward()
            recorder.step(float(loss.data) if rows_ > 6 else None)
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    assert [[one.kind for one in source.evidence] for source in report.sources] == [[told]] * bool(told), str(report)
    assert report.aligned is not bool(told) or rows_ == 6
    assert ("compare how both scripts make the loss" in str(report)) is bool(told)


class Normed(rows.Module):
    """A layer whose output is cast, and a norm that keeps its statistics."""

    def __init__(self, *, low: bool, momentum: float) -> None:
        self.layer, self.norm = Layer(SIZE, SIZE), rows.BatchNorm(SIZE)
        self.layer.low, self.norm.momentum = low, momentum

    def forward(self, x: Any) -> Any:
        return self.norm(cast(self.layer(x), np.float32))


@pytest.mark.parametrize(("momentum", "evaluated"), [(0.07, False), (0.01, True)])
def test_a_momentum_of_statistics_is_the_cause_behind_casts(tmp_path: Path, momentum: float, evaluated: bool) -> None:
    """The buffers differed, and nothing was a source: what the casts round excuses no setting that shows.

    Where an evaluation reads them, what that gives was a source of its own.
    """
    np.random.seed(0)
    models = Normed(low=False, momentum=0.1), Normed(low=True, momentum=momentum)
    for one, other in zip(*(model.parameters() for model in models), strict=True):
        other.data[...] = one.data
    for model, name in zip(models, "ab", strict=True):
        model.train()
        with padiff.record(model, tmp_path / name) as recorder:
            y = model(rows.Tensor(np.random.default_rng(1).standard_normal((24, SIZE), dtype=np.float32)))
            (y * y * np.linspace(0, 1, SIZE, dtype=np.float32)).mean().backward()
            if evaluated:
                model.train(False)
                model(rows.Tensor(np.random.default_rng(2).standard_normal((24, SIZE), dtype=np.float32)))
            recorder.step()
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    (source,) = report.sources
    assert (source.candidate.path, source.cause.name) == ("norm", "settings"), str(report)
    assert "momentum" in source.cause.parameters


@pytest.mark.parametrize(("rate", "limit", "name"), [(0.01, np.inf, ""), (0.0101, np.inf, "lr"), (0.01, 0.05, "")])
def test_master_weights_tell_what_a_narrower_model_is_stepped_with(
    tmp_path: Path, rate: float, limit: float, name: str
) -> None:
    """Nothing of the optimizer was known: no note told of another rate, and gradients that were clipped passed."""
    np.random.seed(0)
    models = Net(low=False), Net(low=True)
    for one, other in zip(*(model.parameters() for model in models), strict=True):
        other.data = one.data.astype(ml_dtypes.bfloat16)
        one.data[...] = other.data
    for model, folder, lr in zip(models, "ab", (0.01, rate), strict=True):
        held = list(model.parameters())
        wide = [rows.Tensor(one.data.astype(np.float32), requires_grad=True) for one in held]
        masters = held if folder == "a" else wide
        optimizer, rng = rows.SGD(masters, lr), np.random.default_rng(1)
        with padiff.record(model, tmp_path / folder) as recorder:
            for _ in range(2):
                y = model(rows.Tensor(rng.standard_normal((8, SIZE), dtype=np.float32)))
                (y * y).mean().backward()
                gradients = [one.grad.astype(np.float32) for one in held]
                norm = np.sqrt(sum(float((one**2).sum()) for one in gradients))
                share = min(1.0, limit / norm) if folder == "b" else 1.0
                for master, gradient in zip(masters, gradients, strict=True):
                    master.step.grad = gradient * np.float32(share)
                optimizer.step()
                for one, master in zip(held, masters, strict=True):
                    one.data[...] = master.data.astype(one.data.dtype)
                    one.step.grad = None
                recorder.step()
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    told = [one.cause and list(one.cause.parameters) for one in report.sources]
    assert told == [["gradients"]] * (limit < 1), str(report)
    assert {note.data["name"] for note in report.notes if note.kind == "optimizer_setting"} == {*filter(None, [name])}


class Bent(rows.Module):
    """A residual block of two layers with a kink behind each; a port may cut off what it skips, or scale gradients."""

    def __init__(self, *, low: bool, cut: bool = False, times: float = 1.0, more: float = 1.0) -> None:
        self.norms = rows.Sequential(rows.BatchNorm(SIZE), rows.BatchNorm(SIZE))
        self.layers, self.cut, self.times = rows.Sequential(Layer(SIZE, SIZE), Layer(SIZE, SIZE)), cut, times
        self.more = more
        for layer in self.layers:
            layer.low = low

    def forward(self, x: Any) -> Any:
        y = x
        for norm, layer in zip(self.norms, self.layers, strict=True):
            y = functional.relu(norm(cast(layer(y), np.float32)))
        skipped = functional.detach(x) if self.cut else x
        z = skipped + y * self.more
        return z * self.times + functional.detach(z) * (1 - self.times)


def _bent(folder: Path, fault: dict[str, Any]) -> padiff.Report:
    for name, low in (("a", False), ("b", True)):
        np.random.seed(0)
        blocks = [Bent(low=low, **fault if low and place == 6 else {}) for place in range(12)]
        model, rng = rows.Sequential(*blocks), np.random.default_rng(1)
        with padiff.record(model, folder / name) as recorder:
            out = model(rows.Tensor(rng.standard_normal((64, SIZE), dtype=np.float32)))
            (out * rng.standard_normal((64, SIZE), dtype=np.float32)).mean().backward()
            recorder.step()
    return padiff.compare(folder / "a", folder / "b")


@pytest.mark.parametrize(
    ("fault", "place"), [({}, ""), ({"cut": True}, "6.layers.0"), ({"times": 1.3}, "6"), ({"times": 0.0}, "6")]
)
def test_signs_that_a_coarse_type_turns_are_no_fault(tmp_path: Path, fault: dict[str, Any], place: str) -> None:
    """At each kink few elements come or go; over many these are a third of a gradient, and no source was found."""
    report = _bent(tmp_path, fault)
    assert report.aligned is not bool(fault), str(report)
    assert [one.candidate.path for one in report.sources] == [place] * bool(fault), str(report)
    assert any(note.kind == "signs_turned" for note in report.notes) or fault, str(report)


@pytest.mark.parametrize(("more", "said"), [(1.4, "grown"), (0.97, "added_scaled")])
def test_a_fault_that_is_no_leap_behind_casts_is_the_source(tmp_path: Path, more: float, said: str) -> None:
    """A tenth is none in bfloat16: hundreds of values differed, and no source was found. A few hundredths passed."""
    (source,) = _bent(tmp_path, {"more": more}).sources
    assert (source.phase, source.candidate.path) == ("forward", "6"), source
    assert [one.kind for one in source.evidence] == [said], source


class Given(rows.Module):
    """A layer of which something is given: its mean, near zero, or all of it."""

    def __init__(self, *, low: bool, give: Callable[[Any], Any]) -> None:
        self.layer, self.give = Layer(SIZE, SIZE), give
        self.layer.low = low

    def forward(self, x: Any) -> Any:
        return self.give(cast(self.layer(x), np.float32))


@pytest.mark.parametrize(
    ("ours", "theirs", "said"),
    [
        # What cancels rounds by several epsilons, and one element is always larger or smaller as a whole.
        (lambda y: y.mean() + 0.581, lambda y: y.mean() + 0.581, []),
        (lambda y: y * 1.0, lambda y: y * 1.0, []),
        (lambda y: y * 1.0, lambda y: y * 0.97, ["made_scaled"]),
    ],
    ids=["one number", "right", "scaled"],
)
def test_a_scale_shows_in_many_elements(tmp_path: Path, ours: Any, theirs: Any, said: list[str]) -> None:
    for name, low, give in (("a", False, ours), ("b", True, theirs)):
        np.random.seed(0)
        model, rng = Given(low=low, give=give), np.random.default_rng(1)
        with padiff.record(model, tmp_path / name) as recorder:
            out = model(rows.Tensor(rng.standard_normal((64, SIZE), dtype=np.float32)))
            (out * out).mean().backward()
            recorder.step()
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    assert [one.kind for source in report.sources for one in source.evidence] == said, str(report)
    assert report.aligned is not bool(said), str(report)
