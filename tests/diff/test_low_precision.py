"""Find what is wrong in narrow types, and let pass what only a policy of types makes differ."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import padiff
from padiff.report import Phase

X = np.random.default_rng(0).standard_normal((2, 5, 16), dtype=np.float32)
POLICIES = {
    "bfloat16": ((torch.bfloat16, None), (torch.bfloat16, None)),
    "float16": ((torch.float16, None), (torch.float16, None)),
    "autocast": ((torch.float32, torch.bfloat16), (torch.float32, torch.bfloat16)),
    "autocast in the reference": ((torch.float32, torch.bfloat16), (torch.float32, None)),
    "autocast in the candidate": ((torch.float32, None), (torch.float32, torch.bfloat16)),
    "a bfloat16 candidate": ((torch.float32, None), (torch.bfloat16, None)),
    "a float64 reference": ((torch.float64, None), (torch.float32, None)),
}
"""Dtype of the weights, and of autocast, of both sides."""
FAULTS = {
    "the norm's scale": ("blocks.0.norm", "blocks.1.norm"),
    "the softmax's scale": ("blocks.0", "blocks.1"),
    "the residual": ("blocks.0", "blocks.1"),
    "the table": ("",),
}
"""What is wrong by 3 % -> where."""


class Norm(torch.nn.Module):
    """A norm that computes in float32, whatever it is given."""

    def __init__(self, fault: str) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.linspace(0.5, 1.5, 16))
        self.scale = 1.03 if fault == "the norm's scale" else 1.0

    def forward(self, x: Any) -> Any:
        wide = x.float()
        return self.weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) * self.scale + 1e-6)).to(x.dtype)


class Block(torch.nn.Module):
    """Mix positions by a softmax in float32, and features by two linear layers."""

    def __init__(self, fault: str) -> None:
        super().__init__()
        self.norm, self.inner, self.outer = Norm(fault), torch.nn.Linear(16, 24), torch.nn.Linear(24, 16)
        self.sharp = 1.03 if fault == "the softmax's scale" else 1.0
        self.share = 1.03 if fault == "the residual" else 1.0

    def forward(self, x: Any) -> Any:
        h = self.norm(x)
        weights = F.softmax((h @ h.transpose(1, 2)).float() * self.sharp, -1).to(h.dtype)
        x = x + (weights @ h) * self.share
        return x + self.outer(F.silu(self.inner(x)))


class Net(torch.nn.Module):
    """Two blocks on inputs to which a table is added that float32 computes."""

    def __init__(self, fault: str = "", casts: Any = None) -> None:
        super().__init__()
        self.blocks = torch.nn.ModuleList(Block(fault) for _ in range(2))
        self.step = 1.03 if fault == "the table" else 1.0
        self.casts = casts

    def forward(self, x: Any) -> Any:
        x = x + torch.arange(16).float().mul(self.step).cos().to(x.dtype)
        with torch.autocast("cpu", self.casts, enabled=self.casts is not None):
            for block in self.blocks:
                x = block(x)
        return x


def judged(policy: str, fault: str) -> padiff.Report:
    """Return the report on two nets, the candidate with a fault."""
    sides = []
    for (dtype, casts), wrong in zip(POLICIES[policy], ("", fault), strict=True):
        torch.manual_seed(0)
        sides.append(Net(wrong, casts).to(dtype))
    given = tuple(torch.from_numpy(X).to(dtype) for dtype, _ in POLICIES[policy])
    return padiff.diff(*sides, (given[0],), candidate_inputs=(given[1],))


@pytest.mark.parametrize("policy", POLICIES)
def test_a_right_port_is_aligned(policy: str) -> None:
    report = judged(policy, "")
    assert report.aligned, report


@pytest.mark.parametrize(
    ("policy", "fault"),
    [(policy, fault) for at, policy in enumerate(POLICIES) for of, fault in enumerate(FAULTS) if (at + of) % 2 == 0],
)
def test_three_percent_are_found_and_placed(policy: str, fault: str) -> None:
    report = judged(policy, fault)
    assert {source.candidate.path for source in report.sources} == set(FAULTS[fault]), report
    assert {source.phase for source in report.sources} == {padiff.Phase.FORWARD}, report


class _Norm(torch.nn.Module):
    """A norm as models write it, which computes in float32 or does not."""

    def __init__(self, upcast: bool) -> None:
        super().__init__()
        self.weight, self.upcast = torch.nn.Parameter(torch.ones(16)), upcast

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x.float() if self.upcast else x
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * y.to(x.dtype)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("upcast", [(True, False), (False, True), (True, True)])
def test_a_missing_upcast_is_named_as_a_policy_of_types(dtype: torch.dtype, upcast: tuple[bool, bool]) -> None:
    """It is rounding, and was passed over in silence."""
    torch.manual_seed(0)
    models = [torch.nn.Sequential(torch.nn.Linear(16, 16), _Norm(one)).to(dtype) for one in upcast]
    report = padiff.diff(*models, (torch.from_numpy(X).to(dtype),))
    assert report.aligned, str(report)
    said = [note for note in report.notes if note.kind == "dtype_policy"]
    assert [note.candidate.path for note in said] == (["1"] if upcast[0] != upcast[1] else []), str(report)
    for note in said:
        assert note.data["side"] == ("candidate" if upcast[0] else "reference")
        assert "pow" in note.data["operations"]
        assert f"computes in {str(dtype).removeprefix('torch.')} what" in note.text


class Casting(torch.nn.Module):
    """Code that casts by itself: what it is given, in a model of float16; or twice, in one of float32."""

    def __init__(self, dtype: torch.dtype, wrong: float = 1.0) -> None:
        super().__init__()
        self.norm, self.inner, self.outer = torch.nn.LayerNorm(16), torch.nn.Linear(16, 24), torch.nn.Linear(24, 16)
        self.narrow, self.wrong = dtype == torch.float16, wrong
        self.to(dtype)

    def forward(self, x: Any) -> Any:
        if self.narrow:
            return self.outer(F.gelu(self.inner(self.norm(x.half())) * self.wrong)).float()
        return self.outer(self.inner(self.norm(x))).half().to(x).bfloat16().to(x) * self.wrong


@pytest.mark.parametrize(("dtype", "wrong"), [(torch.float16, 1.005), (torch.float32, 1.002)], ids=["model", "twice"])
def test_a_cast_in_code_hides_no_fault(dtype: torch.dtype, wrong: float) -> None:
    """No layer in float64 takes what was cast to float16; and what is cast on from there was taken for a kernel's."""
    assert padiff.diff(Casting(dtype), Casting(dtype), X).aligned
    (source,) = padiff.diff(Casting(dtype), Casting(dtype, wrong), X).sources
    assert (source.phase, source.candidate.path) == ("forward", ""), str(source)


def test_a_step_by_rounding_alone_is_as_long_as_others_of_its_module(tmp_path: Path) -> None:
    """The gradient of a bias in front of a norm is rounding alone, of another size where one side casts."""
    for name in ("plain", "cast"):
        torch.manual_seed(0)
        layers = (torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU())
        model = torch.nn.Sequential(*layers, torch.nn.Flatten(), torch.nn.Linear(392, 5))
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        with padiff.record(model, tmp_path / name, optimizer=optimizer) as recorder:
            with torch.autocast("cpu", torch.bfloat16, enabled=name == "cast"):
                output = model(torch.randn(4, 3, 9, 9, generator=torch.Generator().manual_seed(0)))
            loss = output.float().square().mean()
            loss.backward()
            optimizer.step()
            recorder.step(loss)
    report = padiff.compare(tmp_path / "plain", tmp_path / "cast")
    assert not report.sources, str(report)


class Tied(torch.nn.Module):
    """Attention in autocast, and a head that is the table: by framework functions, or by hand with a wider softmax."""

    def __init__(self, *, by_hand: bool, casts: bool, share: float = 0.0) -> None:
        super().__init__()
        self.table, self.norm, self.qkv = torch.nn.Embedding(50, 16), torch.nn.LayerNorm(16), torch.nn.Linear(16, 48)
        torch.nn.init.normal_(self.table.weight, std=0.2)
        self.by_hand, self.casts, self.share = by_hand, casts, share

    def forward(self, ids: Any) -> Any:
        with torch.autocast("cpu", torch.bfloat16, enabled=self.casts):
            x, weight = self.table(ids), self.table.weight
            q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
            if self.by_hand:
                v = torch.softmax((q @ k.transpose(1, 2) / 4).float(), -1).to(v.dtype) @ v
                weight = weight * (1 + self.share) - (weight * self.share).detach() if self.share else weight
            else:
                v = F.scaled_dot_product_attention(q, k, v)
            return F.log_softmax(F.linear(x + v, weight), -1)


@pytest.mark.parametrize("share", [0.0, 0.02])
@pytest.mark.parametrize("casts", [(True, True), (True, False), (False, True)], ids=["both", "reference", "candidate"])
def test_the_gradient_of_a_table_that_is_the_head_rounds_there_too(casts: tuple[bool, bool], share: float) -> None:
    """Of the table's own call no rounding explained it, and right ports were a source."""
    ids = np.random.default_rng(0).integers(0, 50, (2, 12))
    ours, theirs = Tied(by_hand=False, casts=casts[0]), Tied(by_hand=True, casts=casts[1], share=share)
    report = padiff.diff(ours, theirs, (ids,))
    assert report.aligned is not bool(share), str(report)
    assert {one.phase for one in report.sources} <= {Phase.BACKWARD}
    assert "rounding alone explains 0.7" not in str(report), str(report)


class FarFromZero(torch.nn.Module):
    """Attention whose values are large and near to each other, so that most of its scores' gradients cancels."""

    def __init__(self, *, wide: bool, scale: float = 8**-0.5) -> None:
        super().__init__()
        self.q, self.k, self.v, self.out = (torch.nn.Linear(8, 8) for _ in range(4))
        self.v.bias.data += 100
        self.wide, self.scale = wide, scale

    def forward(self, x: Any) -> Any:
        q, k = self.q(x), self.k(x).transpose(1, 2)
        weights = (
            (q @ k * self.scale).float().softmax(-1).to(x.dtype) if self.wide else (q * self.scale @ k).softmax(-1)
        )
        return self.out(weights @ self.v(x))


@pytest.mark.parametrize("scale", [8**-0.5, 0.36])
@pytest.mark.parametrize("wide", [True, False], ids=["reference", "candidate"])
def test_a_cast_to_the_type_that_code_has_rounds_in_float64_alone(wide: bool, scale: float) -> None:
    """What it rounds there was more than rounding of a value explains, where that is what is left of a gradient."""
    x = np.random.default_rng(0).standard_normal((2, 7, 8)).astype(np.float32)
    torch.manual_seed(0)
    report = padiff.diff(FarFromZero(wide=wide), FarFromZero(wide=not wide, scale=scale), (x,))
    assert report.aligned == (scale != 0.36), str(report)
    assert {one.phase for one in report.sources} == (set() if report.aligned else {Phase.FORWARD}), str(report)


class Turned(torch.nn.Module):
    """Attention of one head whose queries and keys are turned by a table in the type that the model is built in."""

    def __init__(self, base: float, dtype: torch.dtype, *, packed: bool = False, first: int = 0) -> None:
        super().__init__()
        self.packed, self.base, self.dtype, self.first = packed, base, dtype, first
        layers = {"qkv": torch.nn.Linear(16, 48)} if packed else {name: torch.nn.Linear(16, 16) for name in "qkv"}
        self.layers, self.out = torch.nn.ModuleDict(layers), torch.nn.Linear(16, 16)
        self.to(dtype)

    def forward(self, x: Any) -> Any:
        q, k, v = self.layers["qkv"](x).chunk(3, -1) if self.packed else (self.layers[name](x) for name in "qkv")
        places = (
            torch.arange(self.first, self.first + x.shape[1]).float().to(self.dtype if self.first else torch.float32)
        )
        angles = np.tile(np.outer(places.double(), self.base ** (-np.arange(8) / 8)), 2).astype(np.float32)
        cosines, sines = (torch.from_numpy(table).to(self.dtype) for table in (np.cos(angles), np.sin(angles)))
        q, k = (y * cosines + torch.cat([-y[..., 8:], y[..., :8]], -1) * sines for y in (q, k))
        return x + self.out(F.softmax(q @ k.transpose(1, 2) * 2, -1) @ v)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    "types", [(torch.float32, torch.bfloat16), (torch.float16, torch.float32), (torch.float16, torch.bfloat16)]
)
@pytest.mark.parametrize("base", [10000.0, 8000.0])
def test_a_model_of_a_narrower_type_casts_its_tables_to_it(base: float, types: Any, packed: bool) -> None:
    """In float64 they are rounded still, as were packed weights: right ports were sources, in all their own code."""
    torch.manual_seed(0)
    models = [Turned(10000.0, types[0], packed=False), Turned(base, types[1], packed=packed)]
    given = [torch.from_numpy(X).to(dtype) for dtype in types]
    report = padiff.diff(*models, (given[0],), candidate_inputs=(given[1],))
    assert report.aligned is (base == 10000.0), str(report)
    assert {str(one.what) for one in report.sources} <= {"input 'input' of out"}, str(report)


def test_positions_that_a_narrow_type_does_not_hold_are_a_fault() -> None:
    """Above 256 bfloat16 has every other number: more than the rounding of a table."""
    torch.manual_seed(0)
    models = [Turned(10000.0, dtype, first=300) for dtype in (torch.float32, torch.bfloat16)]
    given = [torch.from_numpy(X).to(model.dtype) for model in models]
    report = padiff.diff(*models, (given[0],), candidate_inputs=(given[1],))
    assert [str(one.what) for one in report.sources] == ["input 'input' of out"], str(report)


class Placed(torch.nn.Module):
    """Attention by places, whose angles are made in float32 or in the model's own type."""

    def __init__(self, dtype: torch.dtype, *, narrow: bool) -> None:
        super().__init__()
        self.query, self.key, self.out = (torch.nn.Linear(32, 32) for _ in range(3))
        self.narrow = narrow
        self.to(dtype)
        self.register_buffer("frequencies", 1e4 ** (-torch.arange(16) / 16), persistent=False)

    def _turned(self, x: Any) -> Any:
        dtype = x.dtype if self.narrow else torch.float32
        angles = torch.arange(x.shape[1]).to(dtype)[:, None] * self.frequencies.to(dtype)
        cos, sin, (one, other) = angles.cos().to(x.dtype), angles.sin().to(x.dtype), x.chunk(2, -1)
        return torch.cat([one * cos - other * sin, other * cos + one * sin], -1)

    def forward(self, x: Any) -> Any:
        scores = self._turned(self.query(x)) @ self._turned(self.key(x)).transpose(1, 2)
        return self.out(scores.softmax(-1) @ x)


@pytest.mark.parametrize("narrow", [False, True])
def test_angles_in_a_narrow_type_are_a_fault_beside_a_table_in_float32(narrow: bool) -> None:
    """In float64 both are the same but for that table, which explained it: aligned, 48 % apart."""
    torch.manual_seed(0)
    models = [Placed(torch.float32, narrow=False), Placed(torch.bfloat16, narrow=narrow)]
    x = torch.from_numpy(np.random.default_rng(0).standard_normal((1, 600, 32), dtype=np.float32) * 3)
    report = padiff.diff(*models, (x,), candidate_inputs=(x.to(torch.bfloat16),))
    assert [str(one.what) for one in report.sources] == ["input 'input' of out"] * narrow, str(report)
    assert report.aligned is not narrow, str(report)
    assert all(one.rests_on("digits_lost") for one in report.sources), str(report)


class Scaled(torch.nn.Module):
    """Two layers with numbers up to 1e5 between them, which a float16 does not hold; they may come by a cast."""

    def __init__(self, dtype: torch.dtype, *, cast: bool) -> None:
        super().__init__()
        self.one, self.two, self.cast, self.dtype = torch.nn.Linear(16, 8), torch.nn.Linear(8, 4), cast, dtype
        self.to(dtype)

    def forward(self, x: Any) -> Any:
        y = self.one(x)
        y = (y.float() * 1e5).to(self.dtype) if self.cast else y * 1e5
        return self.two(torch.tanh(y / 1e5))


@pytest.mark.parametrize("cast", [False, True])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_what_a_narrow_type_does_not_hold_is_no_precision(dtype: torch.dtype, cast: bool) -> None:
    """An overflow, a third of what comes behind it, is gone in float64: the report was aligned, 28 % apart."""
    torch.manual_seed(0)
    models, given = [Scaled(one, cast=cast) for one in (torch.float32, dtype)], torch.from_numpy(X)
    report = padiff.diff(*models, (given,), candidate_inputs=(given.to(dtype),))
    assert [str(one.what) for one in report.sources] == ["input 'input' of two"] * (dtype is torch.float16), str(report)
    assert cast or all(one.rests_on("digits_lost") for one in report.sources), str(report)


@pytest.mark.parametrize(
    "types",
    [
        (torch.float32, torch.bfloat16),
        (torch.bfloat16, torch.bfloat16),
        (torch.float32, torch.float16),
        (torch.float64, torch.float32),
    ],
)
@pytest.mark.parametrize("share", [1.0, 1.015, 1.1])
def test_a_loss_is_held_to_the_type_of_what_it_is_made_of(types: tuple[torch.dtype, torch.dtype], share: float) -> None:
    """Of the same output, rounded to the narrower type: every such comparison with a loss was not aligned."""
    models = []
    for dtype in types:
        torch.manual_seed(0)
        models.append(torch.nn.Sequential(torch.nn.Linear(16, 8), torch.nn.Tanh(), torch.nn.Linear(8, 4)).to(dtype))
    given = [torch.from_numpy(X).to(dtype) for dtype in types]
    losses = (lambda y: (y.float() ** 2).mean(), lambda y: (y.float() ** 2).mean() * share)
    report = padiff.diff(*models, (given[0],), candidate_inputs=(given[1],), loss=losses)
    assert [str(one.what) for one in report.sources] == ["loss"] * (share != 1), str(report)
    assert all("test_low_precision.py" in str(one.candidate.location) for one in report.sources), str(report)


@pytest.mark.parametrize("types", [(torch.float32, torch.bfloat16), (torch.bfloat16, torch.float32)])
@pytest.mark.parametrize("slip", [0.0, 0.02])
def test_what_a_loss_holds_may_be_rounded(types: tuple[torch.dtype, torch.dtype], slip: float) -> None:
    """Targets and advantages in a narrower type: of a loss that these nearly cancel, rounding is a percent."""
    generator = torch.Generator().manual_seed(2)
    targets, advantages = (torch.randn(*X.shape[:-1], 4, generator=generator) for _ in range(2))
    held = [(targets.to(dtype), advantages.to(dtype)) for dtype in types]
    models = []
    for dtype in types:
        torch.manual_seed(0)
        models.append(torch.nn.Sequential(torch.nn.Linear(16, 8), torch.nn.Tanh(), torch.nn.Linear(8, 4)).to(dtype))
    given = [torch.from_numpy(X).to(types[1]).to(dtype) for dtype in types]

    def loss(y: torch.Tensor, wanted: torch.Tensor, gained: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
        return ((y - wanted) ** 2).mean() * 0.1 - (torch.softmax(y * scale, -1) * (gained - gained.mean())).mean()

    losses = (lambda y: loss(y, *held[0]), lambda y: loss(y, *held[1], 1 + slip * 5))
    report = padiff.diff(*models, (given[0],), candidate_inputs=(given[1],), loss=losses)
    assert [one.phase.value for one in report.sources] == ["loss"] * bool(slip), str(report)


def cosine(y: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    return 1 - F.cosine_similarity(y, wanted, dim=-1).mean()


def advantage(y: torch.Tensor, gained: torch.Tensor) -> torch.Tensor:
    return (torch.softmax(y, -1) * (gained - gained.mean())).sum(-1).mean()


def divergence(y: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    logs = (F.log_softmax(one, -1) for one in (y, wanted))
    return F.kl_div(*logs, log_target=True, reduction="batchmean")


def masked(y: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
    """A column is masked by a number so large that, were it off by an epsilon, nothing else would count."""
    return torch.logsumexp(y - (1 - y.new_tensor([1, 1, 1, 0])) * 1e4, -1).mean()


@pytest.mark.parametrize(
    ("loss", "types", "seed"),
    [
        (cosine, (torch.float32, torch.bfloat16), 0),
        (cosine, (torch.bfloat16, torch.float32), 0),
        (cosine, (torch.float32, torch.float16), 0),
        (cosine, (torch.bfloat16, torch.bfloat16), 0),
        (advantage, (torch.float32, torch.float16), 3),
        (masked, (torch.float32, torch.bfloat16), 2),
        (divergence, (torch.float32, torch.float16), 4),
        (divergence, (torch.float32, torch.bfloat16), 2),
    ],
)
@pytest.mark.parametrize(("share", "sent"), [(1.0, 1.0), (2.0, 2.0), (1.0, 1.05)])
def test_a_loss_of_what_is_nearly_the_same_may_be_mostly_rounding(
    loss: Any, types: tuple[torch.dtype, torch.dtype], seed: int, share: float, sent: float
) -> None:
    """One less a cosine near one: a third of it is rounding in bfloat16, and 5 % of the gradient that it sends."""

    def otherwise(value: torch.Tensor) -> torch.Tensor:
        return value.detach() * share + (value - value.detach()) * sent

    generator = torch.Generator().manual_seed(seed)
    given, near, gained = (torch.randn(4, size, generator=generator) for size in (6, 4, 4))
    models = []
    for dtype in types:
        torch.manual_seed(seed)
        models.append(torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 4)).to(dtype))
    inputs = [given.to(torch.bfloat16 if torch.bfloat16 in types else torch.float16).to(dtype) for dtype in types]
    aimed = models[0](inputs[0]).detach().float() + 0.1 * near if loss in (cosine, divergence) else gained
    held = [aimed.to(dtype) for dtype in types]
    losses = (lambda y: loss(y, held[0]), lambda y: otherwise(loss(y, held[1])))
    report = padiff.diff(*models, (inputs[0],), candidate_inputs=(inputs[1],), loss=losses)
    assert [one.phase.value for one in report.sources] == ["loss"] * (sent != 1), str(report)


@pytest.mark.parametrize(("rate", "decay"), [(0.05, 0.0), (0.05, 0.1), (2.0, 0.0)])
def test_a_step_is_held_to_the_type_of_the_weights(rate: float, decay: float) -> None:
    """Weights in bfloat16 are rounded once more by each step: every such comparison with optimizers was not aligned."""
    models = []
    for dtype in (torch.float32, torch.bfloat16):
        torch.manual_seed(0)
        models.append(torch.nn.Sequential(torch.nn.Linear(16, 8), torch.nn.Tanh(), torch.nn.Linear(8, 4)).to(dtype))
    both = zip(models, ((0.05, 0.0), (rate, decay)), strict=True)
    optimizers = tuple(torch.optim.SGD(model.parameters(), lr, weight_decay=own) for model, (lr, own) in both)
    given = [torch.from_numpy(X).to(model[0].weight.dtype) for model in models]
    report = padiff.diff(*models, (given[0],), candidate_inputs=(given[1],), optimizers=optimizers, steps=2)
    assert [str(one.what) for one in report.sources] == ["step of 4 parameters"] * (2 if rate == 2.0 else 0), str(
        report
    )
    assert ("lr: 0.05 in the reference, 2.0 in the candidate" in str(report)) is (rate == 2.0), str(report)
    noted = [note.data["name"] for note in report.notes if note.kind == "optimizer_setting"]
    assert noted == ["weight_decay"] * bool(decay), str(report)


class CastsFirst(torch.nn.Module):
    """Bring what it is given to the type of its weights, as models do that take images."""

    def __init__(self, factor: float = 1.0, eps: float = 1e-5) -> None:
        super().__init__()
        self.factor, self.first, self.norm = factor, torch.nn.Linear(16, 8), torch.nn.LayerNorm(8, eps)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.to(self.first.weight.dtype)
        return self.norm(torch.relu(self.first(x if self.factor == 1 else x * self.factor)))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(
    ("fault", "causes"),
    [({}, []), ({"eps": 1.0}, ["settings"]), ({"factor": 1.1}, ["code_alone"])],
    ids=["right", "norm", "input"],
)
def test_what_a_model_casts_is_no_source_beside_a_fault(
    fault: dict[str, float], causes: list[str], dtype: torch.dtype, turned: bool
) -> None:
    """In float64 such a cast hands on what it is given: the reference's value did not arise there, it was told."""
    models = CastsFirst(), CastsFirst(**fault)
    models[turned].to(dtype)
    report = padiff.diff(*models, (torch.from_numpy(X),))
    assert [one.cause and one.cause.name for one in report.sources] == causes, str(report)
