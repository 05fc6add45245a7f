"""Compare functions, operators and tensor methods of a model's own code one by one, each named with its line."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import pytest
import torch

import padiff
from padiff.report import Report, Verdict

from .models import Kit, array, assert_clean, blocks, kit, network, source, told

Kits = tuple[Kit, Kit]
X = (array(4, 8),)


def line_of(mark: str) -> int:
    """Return the number of the only line of this file that ends in a comment."""
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    (found,) = (number for number, line in enumerate(lines, 1) if line.endswith(f"  # {mark}"))
    return found


def compared(kits: Kits, build: Any, *plans: str, **options: Any) -> Report:
    """Return the report on a net and a port of it, the latter with faults planted."""
    reference, candidate = build(kits[0]), build(kits[1], *plans)
    return padiff.diff(reference, candidate, X, operations=True, **options)


def attending(kit: Kit, *plans: str) -> Any:
    """Return a net with a scaled, masked softmax in the model's own code."""
    f = kit.functional

    def forward(self: Any, x: Any) -> Any:
        query, key = self.query(x), self.key(x)
        scores = (query * (3.0 if "scale" in plans else 2.0)).reshape(4, 8, 1) * key.reshape(4, 1, 8)  # scaled
        weights = kit.softmax(scores)
        if "detached" in plans:
            weights = kit.detach(weights)
        mixed = (weights * x.reshape(4, 1, 8)).sum(-1)
        act = f.sigmoid if "sigmoid" in plans else f.relu
        y = act(mixed) + (1.01 if "sum" in plans else 1.0)  # activated
        return self.out(y)

    return network(kit, forward, name="Attending", query=kit.linear(8, 8), key=kit.linear(8, 8), out=kit.linear(8, 3))


def test_a_right_port_is_aligned_and_its_operations_are_counted(kits: Kits) -> None:
    report = compared(kits, attending)
    assert_clean(report)
    plain = padiff.diff(attending(kits[0]), attending(kits[1]), X)
    assert_clean(plain)
    assert sum(plain.counts.get(verdict.value, 0) for verdict in (Verdict.EQUAL, Verdict.ROUNDING)) == 4
    assert sum(report.counts.values()) >= 4 + 9, report.counts


@pytest.mark.parametrize(
    ("plan", "path", "mark", "cause"),
    [
        ("scale", "mul", "scaled", "called as mul(_, 2.0) in the reference, as mul(_, 3.0) in the candidate"),
        ("sum", "add", "activated", "called as add(_, 1.0) in the reference, as add(_, 1.01) in the candidate"),
    ],
)
def test_a_wrong_operand_is_named_with_its_line(kits: Kits, plan: str, path: str, mark: str, cause: str) -> None:
    report = compared(kits, attending, plan)
    found = source(report, "forward", path)
    assert found.cause == cause
    for place in (found.reference, found.candidate):
        assert place.location == f"{__file__}:{line_of(mark)}", place
        assert place.class_name.rpartition(".")[2] in {path, f"__{path}__"}
    without = padiff.diff(attending(kits[0]), attending(kits[1], plan), X)
    assert source(without, "forward", "").between is not None  # the code around, between two of its calls


def test_another_function_is_named_as_what_it_is(kits: Kits) -> None:
    found = source(compared(kits, attending, "sigmoid"), "forward", "sigmoid")
    assert found.reference.path == "relu"
    assert "kind: relu (relu) in the reference, sigmoid (sigmoid) in the candidate" in str(found.cause)
    assert found.candidate.location == f"{__file__}:{line_of('activated')}"


def test_a_tensor_that_is_taken_apart_in_a_loop_is_followed(kits: Kits) -> None:
    """Where the loop asks for one part too many, a framework's own error ends it: all code behind was lost there."""

    def build(kit: Kit, *plans: str) -> Any:
        def forward(self: Any, x: Any) -> Any:
            one, other = self.first(x).reshape(2, 2, 8)
            act = kit.functional.sigmoid if plans else kit.functional.relu
            return self.last(act(one * other))

        return network(kit, forward, first=kit.linear(8, 8), last=kit.linear(8, 3))

    report = compared(kits, build)
    assert_clean(report)
    found = source(compared(kits, build, "sigmoid"), padiff.Phase.FORWARD, "sigmoid")
    assert found.reference.path == "relu"


@pytest.mark.parametrize("early", [1.0, 1.1], ids=["right before", "wrong before"])
def test_code_that_is_spelled_otherwise_is_compared_behind_a_fault(kits: Kits, early: float) -> None:
    """What is told by values alone had no counterpart behind a first fault: in the free run all is otherwise there."""

    def build(kit: Kit, early: float, scale: float) -> Any:
        def attend(self: Any, x: Any) -> Any:
            parts = self.both(x).reshape(4, 2, 8)
            one, other = (
                (parts[:, 0], parts[:, 1]) if kit is kits[0] else (parts.reshape(4, 16)[:, i : i + 8] for i in (0, 8))
            )
            return x + self.out(kit.functional.relu(one * scale) * other)

        def forward(self: Any, x: Any) -> Any:
            x = x * early
            for block in self.blocks:
                x = block(x)
            return x

        blocks = [network(kit, attend, both=kit.linear(8, 16), out=kit.linear(8, 8)) for _ in range(2)]
        return network(kit, forward, blocks=kit.modules(blocks))

    report = padiff.diff(build(kits[0], 1.0, 0.5), build(kits[1], early, 0.6), X, operations=True)
    wrong = ["mul"] * (early != 1.0) + ["blocks.0.mul", "blocks.1.mul"]
    assert [one.candidate.path for one in report.sources] == wrong, told(report)
    assert str(report.sources[-1].cause) == "called as mul(_, 0.5) in the reference, as mul(_, 0.6) in the candidate"


def test_what_is_cut_off_is_named_at_the_code_that_cuts(kits: Kits) -> None:
    report = compared(kits, attending, "detached")
    assert not report.aligned
    assert {found.phase for found in report.sources} == {"backward"}, told(report)
    assert {found.candidate.path for found in report.sources} <= {"", "softmax"}, told(report)


def test_order_and_spelling_do_not_matter(kits: Kits) -> None:
    def forward(self: Any, x: Any) -> Any:
        a, b = self.a(x), self.b(x)
        return (a + b) * (b - a) + a / 2.0

    def other(self: Any, x: Any) -> Any:
        b = self.b(x)
        half = self.a(x) * 0.5
        a = half + half
        product = (b - a) * (b + a)
        return half + product

    def net(kit: Kit, code: Any) -> Any:
        return network(kit, code, name="Net", a=kit.linear(8, 8), b=kit.linear(8, 8))

    assert_clean(padiff.diff(net(kits[0], forward), net(kits[1], other), X, operations=True))


def writing(kit: Kit, *plans: str) -> Any:
    """Return a net that changes tensors, and views of them, in place."""

    def forward(self: Any, x: Any) -> Any:
        y = self.fc(x) * 1.0
        y += 1.0
        part = y[:, 1:4]
        part *= 3.0 if "view" in plans else 2.0  # of the view
        y[:, 1:4] = part
        y[:, 5] = 0.5 if "item" in plans else 0.0
        return self.out(y * 1.0)

    return network(kit, forward, name="Writing", fc=kit.linear(8, 8), out=kit.linear(8, 3))


def test_what_is_changed_in_place_stays_changed(kits: Kits) -> None:
    assert_clean(compared(kits, writing))


def test_a_fault_in_what_is_changed_in_place_is_named(kits: Kits) -> None:
    found = source(compared(kits, writing, "view"), "forward", "mul")
    assert found.candidate.location == f"{__file__}:{line_of('of the view')}"
    item = compared(kits, writing, "item")
    assert not item.aligned
    assert {found.candidate.path for found in item.sources} <= {"", "mul"}, told(item)


class Normalised(torch.nn.Module):
    """Keep running statistics that a function writes to, three times a run."""

    def __init__(self, momentum: float = 0.1) -> None:
        super().__init__()
        self.fc = torch.nn.Linear(8, 6)
        self.register_buffer("running_mean", torch.zeros(6))
        self.register_buffer("running_var", torch.ones(6))
        self.momentum = momentum

    def forward(self, x: Any) -> Any:
        y = self.fc(x)
        for index in range(3):
            statistics = self.running_mean, self.running_var
            y = torch.nn.functional.batch_norm(
                y + torch.sin(y) * index, *statistics, training=True, momentum=self.momentum
            )
        return y


def test_a_function_writes_to_the_models_own_buffers() -> None:
    model = Normalised()
    assert_clean(padiff.diff(model, Normalised(), X, operations=True))
    report = padiff.diff(model, Normalised(momentum=0.2), X, operations=True)
    assert {(found.phase, found.candidate.path) for found in report.sources} == {("buffer", "")}, told(report)


def test_functions_are_the_frameworks_own_outside_of_a_diff(kits: Kits) -> None:
    seen: list[Any] = []

    def raising(self: Any, x: Any) -> Any:
        seen.append(1)
        if len(seen) == 2:
            msg = "once"
            raise ValueError(msg)
        return self.fc(x) * 2.0

    def places(kit: Kit) -> list[Any]:
        tensor = type(kit.tensor(array(2)))
        return [kit.functional.relu, tensor.__add__, tensor.__mul__, tensor.reshape, tensor.__dict__.get("__add__")]

    before = [places(kit) for kit in kits]
    compared(kits, attending)
    nets = [network(kit, raising, name="Raising", fc=kit.linear(8, 8)) for kit in kits]
    with pytest.raises(padiff.PadiffError, match="once"):
        padiff.diff(*nets, X, operations=True)
    assert [places(kit) for kit in kits] == before


def test_nothing_is_led_astray_where_operations_are_not_asked_for(kits: Kits) -> None:
    reported: list[Any] = []

    def build(kit: Kit) -> Any:
        def forward(self: Any, x: Any) -> Any:
            reported.append((kit.functional.relu, type(x).__add__))
            return self.fc(x)

        return network(kit, forward, name="Net", fc=kit.linear(8, 8))

    outside = [(kit.functional.relu, type(kit.tensor(X[0])).__add__) for kit in kits]
    padiff.diff(build(kits[0]), build(kits[1]), X)
    assert set(reported) == set(outside)


def test_a_function_that_the_model_keeps_is_reported_too(kits: Kits) -> None:
    def build(kit: Kit, factor: float = 1.0) -> Any:
        table = {"act": kit.functional.relu}  # no attribute of a module, and no name in one's code

        def forward(self: Any, x: Any) -> Any:
            return table["act"](self.fc(x) * factor) * 2.0

        net = network(kit, forward, name="Keeping", fc=kit.linear(8, 8))
        net.kept = kit.functional.sigmoid
        return net

    report = padiff.diff(build(kits[0]), build(kits[1]), X, operations=True)
    assert_clean(report)
    wrong = padiff.diff(build(kits[0]), build(kits[1], 1.5), X, operations=True)
    assert source(wrong, "forward", "mul").cause is not None


def test_blocks_and_steps_are_judged_with_their_operations(kits: Kits) -> None:
    assert_clean(padiff.diff(blocks(kits[0]), blocks(kits[1]), X, operations=True))
    port = blocks(kits[1], factors={2: 1.001})
    found = source(padiff.diff(blocks(kits[0]), port, X, operations=True), "forward", "blocks.2.mul")
    assert found.cause == "called as mul(_, 1.0) in the reference, as mul(_, 1.001) in the candidate"


def test_the_users_tolerance_decides_for_operations_too(kits: Kits) -> None:
    port = blocks(kits[1], factors={2: 1.001})
    rule = {"atol": 1e-6, "rtol": 1e-4}
    assert source(
        padiff.diff(blocks(kits[0]), port, X, operations=True, tolerance=rule), "forward", "blocks.2.mul", alone=False
    )
    loose = {"atol": 1.0, "rtol": 1.0}
    assert padiff.diff(blocks(kits[0]), port, X, operations=True, tolerance=loose).aligned


def masked(mask: Any, spelling: float, axis: int = -1) -> Any:
    """Return a net whose scores are masked, with what and by which number, and the axis over which they are weighed."""

    class Masked(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = torch.nn.Linear(8, 4)
            self.out = torch.nn.Linear(4, 3)

        def forward(self, x: Any) -> Any:
            y = self.fc(x)
            hidden = mask(torch.ones(4, 4, dtype=torch.bool)).logical_not()
            weights = (y @ y.mT).masked_fill(hidden, spelling).softmax(axis)
            return self.out(weights @ y)

    return Masked()


@pytest.mark.parametrize("spellings", itertools.permutations((-float("inf"), -1e9, -3.4e38), 2))
def test_a_mask_in_another_spelling_is_right_and_no_second_source(spellings: tuple[float, float]) -> None:
    def later(ones: Any) -> Any:
        return ones.tril(1)

    ours, theirs = spellings
    assert_clean(padiff.diff(masked(torch.tril, ours), masked(torch.tril, theirs), X, operations=True))
    for masks in ((later, torch.tril), (torch.tril, later)):
        report = padiff.diff(masked(masks[0], ours), masked(masks[1], theirs), X, operations=True)
        source(report, "forward", "tril")
    report = padiff.diff(masked(torch.tril, ours), masked(torch.tril, theirs, axis=-2), X, operations=True)
    assert source(report, "forward", "softmax").cause is not None  # behind the mask, all is compared


class Masking(torch.nn.Module):
    """Make a masked bias itself, and cast its scores by name: it runs in float64 where such casts are left out."""

    def __init__(self) -> None:
        super().__init__()
        self.mix, self.out = torch.nn.Linear(8, 4), torch.nn.Linear(8, 8)

    def forward(self, x: Any, hidden: Any) -> Any:
        bias = torch.arange(4.0).expand(4, 4).masked_fill(hidden, torch.finfo(torch.float32).min)
        return x + self.out(torch.softmax((self.mix(x) + bias).float(), -1) @ x)


class Masked(paddle.nn.Layer):  # type: ignore[misc]
    """The same, given the bias."""

    def __init__(self) -> None:
        super().__init__()
        self.mix, self.out = paddle.nn.Linear(8, 4), paddle.nn.Linear(8, 8)

    def forward(self, x: Any, bias: Any) -> Any:
        return x + self.out(paddle.nn.functional.softmax(self.mix(x) + bias, -1) @ x)


class MaskedOutside(paddle.nn.Layer):  # type: ignore[misc]
    def __init__(self, bias: float) -> None:
        super().__init__()
        self.inner, self.bias = Masked(), bias

    def forward(self, x: Any, hidden: Any) -> Any:
        bias = paddle.where(hidden, paddle.full([4, 4], -1e30), paddle.arange(4.0))
        return self.inner(x, bias * self.bias)


def test_operations_are_seen_where_casts_are_left_out() -> None:
    """What the port's operations took was not seen then, and what was not seen taken for zeros."""
    hidden = np.triu(np.ones((4, 4), bool), 1)
    reference = torch.nn.ModuleDict({"inner": Masking()})
    reference.forward = lambda x, hidden: reference["inner"](x, hidden)
    for bias in (1.0, 3.0):
        report = padiff.diff(reference, MaskedOutside(bias), (*X, hidden), operations=True)
        assert report.aligned == (bias == 1.0), str(report)


class Told(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mix, self.out = torch.nn.Linear(8, 4), torch.nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        scores = self.out(torch.tanh(self.mix(x)))
        return torch.nn.functional.binary_cross_entropy_with_logits(scores, (x > 0).float()[:, :4], reduction="none")


class ToldAsNumbers(paddle.nn.Layer):  # type: ignore[misc]
    """The same, of truths that are cast by name: no function takes them beside scores in float64."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.mix, self.out, self.scale = paddle.nn.Linear(8, 4), paddle.nn.Linear(4, 4), scale

    def forward(self, x: Any) -> Any:
        scores, truths = self.out(paddle.tanh(self.mix(x))) * self.scale, (x > 0).astype("float32")[:, :4]
        return paddle.nn.functional.binary_cross_entropy_with_logits(scores, truths, reduction="none")


@pytest.mark.parametrize("operations", [False, True])
@pytest.mark.parametrize("scale", [1.0, 1 + 3e-6])
def test_truths_as_numbers_keep_no_code_from_float64(scale: float, operations: bool) -> None:
    """Whatever was wrong by no more than rounding may be was aligned around them."""
    report = padiff.diff(Told(), ToldAsNumbers(scale), X[:1], operations=operations)
    assert report.aligned == (scale == 1.0), str(report)


class Placed(Told):
    """Add sines of late positions in float32 to scores that float64 refuses beside targets."""

    def forward(self, x: Any) -> Any:
        angles = torch.outer(torch.arange(940, 940 + len(x)).float(), 1.0 / 10000 ** (torch.arange(4).float() / 4))
        scores = self.out(torch.tanh(self.mix(x))) + 4 * angles.sin()
        return torch.nn.functional.binary_cross_entropy_with_logits(scores, (x > 0).float()[:, :4], reduction="none")


class PlacedOtherwise(ToldAsNumbers):
    """The same angles in another order of operations."""

    def forward(self, x: Any) -> Any:
        rates = paddle.exp(paddle.arange(4).astype("float32") * (-float(np.log(10000.0)) / 4))
        angles = paddle.arange(940, 940 + len(x)).astype("float32").unsqueeze(1) * rates * self.scale
        scores, truths = self.out(paddle.tanh(self.mix(x))) + 4 * paddle.sin(angles), (x > 0).astype("float32")[:, :4]
        return paddle.nn.functional.binary_cross_entropy_with_logits(scores, truths, reduction="none")


@pytest.mark.parametrize("scale", [1.0, 1 + 1e-5])
def test_models_that_run_in_float64_without_casts_alone_are_told_as_wholes(scale: float) -> None:
    """What each call is right in, and no rounding of whole runs explains, the casts left out do."""
    report = padiff.diff(Placed(), PlacedOtherwise(scale), X[:1])
    assert report.aligned == (scale == 1.0), str(report)


class Weighed(Told):
    """Make one value twice: the first is weights, and only the second sends a gradient."""

    def forward(self, x: Any) -> Any:
        near = self.mix(x)
        kept = ((near[:, 2:] - near[:, :2]).detach() > 0).float()
        wide = torch.cat([(near[:, 2:] - near[:, :2]) * kept, near[:, :2]], 1)
        targets = (x > 0).float()[:, :4]
        return torch.nn.functional.binary_cross_entropy_with_logits(self.out(wide), targets, reduction="none")


class WeighedLater(ToldAsNumbers):
    """The same, in the other order."""

    def forward(self, x: Any) -> Any:
        near = self.mix(x)
        wide = (near[:, 2:] - near[:, :2]) * self.scale
        kept = ((near[:, 2:] - near[:, :2]).detach() > 0).astype("float32")
        wide, targets = paddle.concat([wide * kept, near[:, :2]], 1), (x > 0).astype("float32")[:, :4]
        return paddle.nn.functional.binary_cross_entropy_with_logits(self.out(wide), targets, reduction="none")


@pytest.mark.parametrize("scale", [1.0, 1.01])
def test_what_is_made_twice_is_right_where_casts_keep_code_from_float64(scale: float) -> None:
    """A gradient that differs inside is none of a fault where all that goes out is right."""
    report = padiff.diff(Weighed(), WeighedLater(scale), X[:1], operations=True)
    assert report.aligned == (scale == 1.0), str(report)


def test_what_has_no_counterpart_is_the_code_around(kits: Kits) -> None:
    def net(kit: Kit, factor: float | None) -> Any:
        def forward(self: Any, x: Any) -> Any:
            y = self.fc(x)
            return self.out(y if factor is None else kit.functional.relu(y) * factor)

        return network(kit, forward, name="Net", fc=kit.linear(8, 8), out=kit.linear(8, 3))

    report = padiff.diff(net(kits[0], None), net(kits[1], 1.5), X, operations=True)
    assert source(report, "forward", "").between == ("fc", "out"), told(report)


def test_what_a_framework_makes_a_tensor_of_is_not_reported() -> None:
    paddle = kit("paddle")

    def net(*order: int) -> Any:
        def forward(self: Any, x: Any) -> Any:
            chosen = paddle.native.Tensor(np.asarray(order)) + paddle.native.to_tensor([0, 0, 0])
            return self.out(paddle.native.index_select(self.fc(x), chosen, 1))

        return network(paddle, forward, name="Net", fc=paddle.linear(8, 8), out=paddle.linear(3, 3))

    assert_clean(padiff.diff(net(2, 0, 1), net(2, 0, 1), X, operations=True))
    source(padiff.diff(net(2, 0, 1), net(2, 1, 0), X, operations=True), "forward", "")


def test_what_a_dropout_that_does_nothing_hands_on_is_no_second_source(kits: Kits) -> None:
    def net(kit: Kit, factor: float) -> Any:
        def forward(self: Any, x: Any) -> Any:
            y = kit.functional.relu(self.fc(x))
            return self.out(kit.functional.dropout(y, 0.5, training=False) * factor)

        return network(kit, forward, name="Net", fc=kit.linear(8, 8), out=kit.linear(8, 3))

    assert_clean(padiff.diff(net(kits[0], 2.0), net(kits[1], 2.0), X, operations=True))
    report = padiff.diff(net(kits[0], 2.0), net(kits[1], 2.1), X, operations=True)
    source(report, "forward", "mul")


def test_a_loop_whose_values_settle_is_followed_step_by_step(kits: Kits) -> None:
    def net(kit: Kit, *wrong: int) -> Any:
        f = kit.functional

        def forward(self: Any, x: Any) -> Any:
            y = self.fc(x)
            for step in range(20):
                y = f.sigmoid(y * (0.6 if step in wrong else 0.5) + x) + f.relu(y - x) * 0.3
            return self.out(y)

        return network(kit, forward, name="Net", fc=kit.linear(8, 8), out=kit.linear(8, 3))

    assert_clean(padiff.diff(net(kits[0]), net(kits[1]), X, operations=True))
    report = padiff.diff(net(kits[0]), net(kits[1], 10), X, operations=True)
    found = source(report, "forward", "mul")
    assert [one.cause for one in report.sources] == [found.cause], told(report)


def test_a_function_that_draws_with_another_probability_is_named() -> None:
    kits = kit("torch"), kit("paddle")

    def net(kit: Kit, p: float) -> Any:
        def forward(self: Any, x: Any) -> Any:
            return self.out(kit.functional.dropout(self.fc(x), p, training=True))

        return network(kit, forward, name="Net", fc=kit.linear(8, 8), out=kit.linear(8, 3))

    assert padiff.diff(net(kits[0], 0.5), net(kits[1], 0.5), X, operations=True).aligned
    report = padiff.diff(net(kits[0], 0.5), net(kits[1], 0.3), X, operations=True)
    assert "0.3" in str(source(report, "forward", "dropout").cause)


@pytest.mark.parametrize("turned", [False, True])
def test_an_operator_that_is_made_where_it_is_called_is_compared(turned: bool) -> None:
    ours, theirs = kit("mindspore"), kit("torch")

    def making(axis: int) -> Any:
        def forward(self: Any, x: Any) -> Any:
            made = ours.native.ops
            return self.out(made.Softmax(axis=axis)(made.ReLU()(self.fc(x))))

        return network(ours, forward, name="Net", fc=ours.linear(8, 8), out=ours.linear(8, 3))

    def forward(self: Any, x: Any) -> Any:
        return self.out(theirs.functional.relu(self.fc(x)).softmax(-1))

    plain = network(theirs, forward, name="Net", fc=theirs.linear(8, 8), out=theirs.linear(8, 3))
    for axis in (-1, 0):
        models = (plain, making(axis)) if turned else (making(axis), plain)
        report = padiff.diff(*models, X, operations=True)
        if axis == -1:
            assert_clean(report)
        else:
            source(report, "forward", "softmax")


def test_what_makes_a_reference_unusable_is_named_and_not_the_mask_before(kits: Kits) -> None:
    kit = kits[0]

    def forward(self: Any, x: Any) -> Any:
        hidden = kit.tensor(np.where(np.arange(8) < 2, np.float32(np.inf), np.float32(0.0)))
        weights = kit.softmax(self.fc(x) - hidden)
        nothing = weights - weights
        return self.out(nothing / nothing)

    net = network(kit, forward, name="Net", fc=kit.linear(8, 8), out=kit.linear(8, 3))
    with pytest.raises(padiff.PadiffError, match="first in the output of 'div'"):
        padiff.diff(net, attending(kits[1]), X, operations=True)


def test_another_order_of_scales_is_right_beside_a_fault(kits: Kits) -> None:
    def forward(self: Any, x: Any) -> Any:
        y = self.fc(x) * 2.0
        z = self.f.sigmoid(y * 1.5) + y
        return self.out(self.f.relu(z))

    def other(self: Any, x: Any) -> Any:
        y = self.fc(x) * 3.0
        z = self.f.sigmoid(y) + y / 1.5
        return self.out(self.act(z))

    def net(kit: Kit, code: Any, act: str = "relu") -> Any:
        net = network(kit, code, name="Net", fc=kit.linear(8, 8), out=kit.linear(8, 3))
        net.f, net.act = kit.functional, getattr(kit.functional, act)
        return net

    assert_clean(padiff.diff(net(kits[0], forward), net(kits[1], other), X, operations=True))
    report = padiff.diff(net(kits[0], forward), net(kits[1], other, "sigmoid"), X, operations=True)
    assert source(report, "forward", "relu").candidate.path.startswith("sigmoid"), told(report)


class Turned(torch.nn.Module):
    """Make the cosines of its angles twice, beside a parameter that nobody reads."""

    def __init__(self) -> None:
        super().__init__()
        self.angles, self.spare = torch.nn.Parameter(torch.randn(4, 8)), torch.nn.Parameter(torch.ones(1))

    def forward(self, x: Any, rows: Any) -> Any:
        angles = self.angles[rows][:, None]
        return sum((y * torch.cos(angles / 0.5)).sum(-1) for y in (x, x * x, x**3))


class TurnedOnce(paddle.nn.Layer):  # type: ignore[misc]
    def __init__(self, factor: float) -> None:
        super().__init__()
        self.table, self.factor = paddle.nn.Embedding(4, 8), factor

    def forward(self, x: Any, rows: Any) -> Any:
        cosines = paddle.cos(self.table(rows).unsqueeze(1) * 2.0)
        return (x * cosines).sum(-1) + (x * x * cosines).sum(-1) * self.factor + (x**3 * cosines).sum(-1)


@pytest.mark.parametrize("factor", [1.0, 1.001])
def test_what_nobody_reads_keeps_no_gradient_from_being_right(factor: float) -> None:
    """A parameter's gradient that comes of one operation here, and of two there, was a source beside it."""
    report = padiff.diff(Turned(), TurnedOnce(factor), (X[0][:, None], np.arange(4)), operations=True)
    assert report.aligned == (factor == 1.0), str(report)


class Near(torch.nn.Module):
    """Weighs who is near by how far, of pairs that are found first, without gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = torch.nn.Linear(1, 8), torch.nn.Linear(8, 8)

    def forward(self, x: Any, at: Any) -> Any:
        with torch.no_grad():
            near = (at[:, None] - at[None]).norm(dim=-1) < 4.0
            some, others = (near & ~torch.eye(len(at), dtype=torch.bool)).nonzero(as_tuple=True)
        far = (at[some] - at[others]).norm(dim=-1).view(-1, 1)
        weighed = self.two(x)[some] * self.one(far) * torch.exp(-far)
        return torch.zeros_like(x).index_add(0, others, weighed)


class NearOfAll(paddle.nn.Layer):
    """The same of all pairs, by a mask; ``detached`` lets no gradient through to how far they are."""

    def __init__(self, detached: bool) -> None:
        super().__init__()
        self.detached = detached
        self.one, self.two = paddle.nn.Linear(1, 8), paddle.nn.Linear(8, 8)

    def forward(self, x: Any, at: Any) -> Any:
        apart = at.unsqueeze(1) - at.unsqueeze(0)
        if self.detached:
            apart = apart.detach()
        itself = paddle.eye(at.shape[0], dtype=at.dtype)
        far = ((apart * apart).sum(-1) + itself).sqrt() - itself
        near = (far < 4.0).astype(at.dtype) * (1 - itself)
        weights = self.one(far.unsqueeze(-1)) * (paddle.exp(-far) * near).unsqueeze(-1)
        return (self.two(x).unsqueeze(0) * weights).sum(1)


@pytest.mark.parametrize("detached", [False, True])
def test_what_is_computed_once_more_without_gradients_is_another_operation(detached: bool) -> None:
    """The same distances, made first to see who is near, were taken for those that gradients go through."""
    report = padiff.diff(Near(), NearOfAll(detached), (array(5, 8), array(5, 3)), operations=True)
    assert report.aligned is not detached, str(report)
    assert {source.phase for source in report.sources} == ({padiff.Phase.BACKWARD} if detached else set()), str(report)
