"""Diff a model that packs several linear layers into one against a twin that holds them apart."""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle
import pytest
import torch

import padiff

from .judging import describe

WIDTH, HEADS, DEPTH = 12, 3, 4
X = np.random.default_rng(0).normal(size=(2, 5, WIDTH)).astype("float32")


def _attend(q: Any, k: Any, v: Any, softmax: Any) -> Any:
    """Return attention of (batch, heads, time, features)."""
    return softmax(q @ k.transpose([0, 1, 3, 2]) / DEPTH**0.5) @ v


class Packed(torch.nn.Module):
    """Attend with one projection; ``order`` is how q, k and v lie in it, ``grouped`` whether head by head."""

    def __init__(self, order: str = "qkv", *, grouped: bool = False, scale: float = 1.0) -> None:
        super().__init__()
        self.qkv = torch.nn.Linear(WIDTH, 3 * WIDTH)
        self.out = torch.nn.Linear(WIDTH, WIDTH)
        self.order, self.grouped, self.scale = order, grouped, scale

    def forward(self, x: Any) -> Any:
        batch, time, _ = x.shape
        packed = self.qkv(x)
        if self.grouped:
            parts = packed.reshape(batch, time, HEADS, 3, DEPTH).unbind(3)
        else:
            parts = packed.reshape(batch, time, 3, HEADS, DEPTH).unbind(2)
        named = {name: part.permute(0, 2, 1, 3) for name, part in zip(self.order, parts, strict=True)}
        scores = torch.softmax(named["q"] @ named["k"].transpose(2, 3) / DEPTH**0.5 * self.scale, -1)
        return self.out((scores @ named["v"]).permute(0, 2, 1, 3).reshape(batch, time, WIDTH))


class Apart(paddle.nn.Layer):
    """Attend with three projections."""

    def __init__(self) -> None:
        super().__init__()
        self.query = paddle.nn.Linear(WIDTH, WIDTH)
        self.key = paddle.nn.Linear(WIDTH, WIDTH)
        self.value = paddle.nn.Linear(WIDTH, WIDTH)
        self.out = paddle.nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Any) -> Any:
        batch, time, _ = x.shape
        q, k, v = (
            layer(x).reshape([batch, time, HEADS, DEPTH]).transpose([0, 2, 1, 3])
            for layer in (self.query, self.key, self.value)
        )
        mixed = _attend(q, k, v, paddle.nn.functional.softmax)
        return self.out(mixed.transpose([0, 2, 1, 3]).reshape([batch, time, WIDTH]))


class Wrapped(torch.nn.Module):
    """Hold two attentions, so that the packed layers lie at a depth."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        self.blocks = torch.nn.ModuleList(Packed(*args, **kwargs) for _ in range(2))

    def forward(self, x: Any) -> Any:
        for block in self.blocks:
            x = x + block(x)
        return x


class WrappedApart(paddle.nn.Layer):
    """Hold two attentions of three projections."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = paddle.nn.LayerList([Apart() for _ in range(2)])

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = x + layer(x)
        return x


def _sides(first: str, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
    torch.manual_seed(0)
    paddle.seed(0)
    sides = (Wrapped(*args, **kwargs), WrappedApart())
    return sides if first == "torch" else sides[::-1]


FIRST = pytest.mark.parametrize("first", ["torch", "paddle"])


@FIRST
@pytest.mark.parametrize(
    ("order", "grouped"), [("qkv", False), ("kqv", False), ("vkq", False), ("qkv", True), ("vqk", True)]
)
def test_a_packed_projection_is_split_as_its_model_reads_it(order: str, grouped: bool, first: str) -> None:
    report = padiff.diff(*_sides(first, order, grouped=grouped), (X,))
    assert report.aligned, describe(report)
    transfer = report.transfer
    assert transfer is not None
    assert not transfer.unmatched_reference, transfer
    assert not transfer.unmatched_candidate, transfer
    assert not transfer.unverified, transfer
    names = {"q": "query", "k": "key", "v": "value"}
    told = [words for path, words in transfer.settled.items() if path.endswith("qkv")]
    assert len(told) == 2, transfer.settled
    assert all(words.startswith(f"packs {', '.join(names[one] for one in order)}") for words in told), told
    assert all(("3 groups" in words) == grouped for words in told), told


@FIRST
def test_a_fault_beside_a_packed_projection_is_named(first: str) -> None:
    report = padiff.diff(*_sides(first, scale=1.001), (X,))
    at = {"torch": {f"blocks.{i}" for i in range(2)}, "paddle": {f"layers.{i}" for i in range(2)}}
    told = describe(report)
    assert {found.reference.path for found in report.sources} == at[first], told
    assert all(found.between and found.between[1] == "out" for found in report.sources), told


@FIRST
def test_packed_values_are_compared_without_a_transfer(first: str) -> None:
    sides = _sides(first, "kqv")
    assert padiff.diff(*sides, (X,)).aligned
    assert padiff.diff(*sides, (X,), transfer=False).aligned
    with torch.no_grad():
        sides[first != "torch"].blocks[1].qkv.weight[0, 0] += 1
    report = padiff.diff(*sides, (X,), transfer=False)
    places = {(f.reference.path, f.candidate.path) for f in report.sources if f.phase == "parameter"}
    expected = ("blocks.1.qkv", "layers.1.key")
    assert places == {expected if first == "torch" else expected[::-1]}, describe(report)


@FIRST
def test_gpt_of_two_libraries_is_aligned(first: str) -> None:
    # Hugging Face packs query, key and value into one Conv1D, PaddleNLP holds them apart.
    import paddlenlp.transformers
    import transformers

    sizes = {"vocab_size": 60, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 40}
    dropouts = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
    config = transformers.GPT2Config(**sizes, **dropouts, attn_implementation="eager")
    theirs = paddlenlp.transformers.GPTConfig(
        vocab_size=60,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=128,
        max_position_embeddings=40,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    sides = [transformers.GPT2LMHeadModel(config), paddlenlp.transformers.GPTLMHeadModel(theirs)]
    for model in sides:
        model.eval()
    inputs = {"input_ids": np.random.default_rng(0).integers(5, 60, (2, 9)), "use_cache": False}
    report = padiff.diff(*(sides if first == "torch" else sides[::-1]), inputs)
    assert report.aligned, describe(report)
    transfer = report.transfer
    assert transfer is not None
    assert not transfer.unmatched_reference, transfer
    assert not transfer.unmatched_candidate, transfer
    assert not transfer.unverified, transfer


@pytest.mark.parametrize("factor", [1.0, 1.01], ids=["right", "wrong"])
def test_a_convolution_in_groups_packs_one_for_each(factor: float) -> None:
    class Grouped(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.grouped = torch.nn.Conv2d(3, 8, 3), torch.nn.Conv2d(8, 12, 3, groups=4)

        def forward(self, x: Any) -> Any:
            return torch.relu(self.grouped(torch.relu(self.first(x))))

    class Branches(paddle.nn.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.first = paddle.nn.Conv2D(3, 8, 3)
            self.branches = paddle.nn.LayerList(paddle.nn.Conv2D(2, 3, 3) for _ in range(4))

        def forward(self, x: Any) -> Any:
            parts = paddle.chunk(paddle.nn.functional.relu(self.first(x)), 4, 1)
            first, *others = (branch(part) for branch, part in zip(self.branches, parts, strict=True))
            return paddle.nn.functional.relu(paddle.concat([first * factor, *others], 1))

    images = np.random.default_rng(0).standard_normal((2, 3, 7, 7), dtype=np.float32)
    report = padiff.diff(Grouped(), Branches(), images)
    assert [source.candidate.path for source in report.sources] == [""] * (factor != 1), str(report)


@pytest.mark.parametrize(("factor", "biases"), [(1.0, (None, False)), (1.01, (None, None))], ids=["right", "wrong"])
def test_a_convolution_in_time_packs_a_layer_for_each_step(factor: float, biases: tuple[Any, Any]) -> None:
    """A WaveNet by hand adds up a layer of what is, and one of what was: neither found a counterpart."""

    class Causal(torch.nn.Module):
        def __init__(self, dilation: int) -> None:
            super().__init__()
            self.dilated, self.out = torch.nn.Conv1d(6, 12, 2, dilation=dilation), torch.nn.Conv1d(6, 6, 1)
            self.dilation = dilation

        def forward(self, x: Any) -> Any:
            a, b = self.dilated(torch.nn.functional.pad(x, (self.dilation, 0))).chunk(2, 1)
            return x + self.out(torch.tanh(a) * torch.sigmoid(b))

    class Step(paddle.nn.Layer):
        def __init__(self, dilation: int, factor: float) -> None:
            super().__init__()
            self.out, self.dilation, self.factor = paddle.nn.Linear(6, 6), dilation, factor
            self.now, self.before = (paddle.nn.Linear(6, 12, bias_attr=bias) for bias in biases)

        def forward(self, x: Any) -> Any:
            was = paddle.concat([paddle.zeros([len(x), self.dilation, 6], x.dtype), x[:, : -self.dilation]], 1)
            a, b = (self.now(x) * self.factor + self.before(was)).chunk(2, -1)
            return x + self.out(paddle.tanh(a) * paddle.nn.functional.sigmoid(b))

    class Steps(paddle.nn.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.stack = paddle.nn.LayerList([Step(1, 1.0), Step(2, factor)])

        def forward(self, x: Any) -> Any:
            x = x.transpose([0, 2, 1])
            for step in self.stack:
                x = step(x)
            return x.transpose([0, 2, 1])

    report = padiff.diff(torch.nn.Sequential(Causal(1), Causal(2)), Steps(), X.swapaxes(1, 2)[:, :6])
    assert [source.candidate.path for source in report.sources] == ["stack.1"] * (factor != 1), str(report)
    report = padiff.diff(Steps(), torch.nn.Sequential(Causal(1), Causal(2)), X.swapaxes(1, 2)[:, :6])
    assert [source.candidate.path for source in report.sources] == ["1"] * (factor != 1), str(report)


class Mixed(torch.nn.Module):
    """Mix the last steps of what one projection gives, each channel by itself, and gate."""

    def __init__(self) -> None:
        super().__init__()
        self.proj, self.out = torch.nn.Linear(WIDTH, 3 * WIDTH), torch.nn.Linear(WIDTH, WIDTH)
        self.conv = torch.nn.Conv1d(3 * WIDTH, 3 * WIDTH, 3, padding=2, groups=3 * WIDTH)

    def forward(self, x: Any) -> Any:
        q, k, v = self.conv(self.proj(x).transpose(1, 2))[..., :-2].chunk(3, 1)
        return self.out((torch.tanh(q * k) + v).transpose(1, 2))


class MixedApart(paddle.nn.Layer):
    """The same with a projection and a convolution for each."""

    def __init__(self, fault: bool) -> None:
        super().__init__()
        self.layers = paddle.nn.LayerList([paddle.nn.Linear(WIDTH, WIDTH) for _ in range(3)])
        conv = {"groups": WIDTH, "padding": [2, 0], "data_format": "NLC"}
        self.convs = paddle.nn.LayerList([paddle.nn.Conv1D(WIDTH, WIDTH, 3, **conv) for _ in range(3)])
        self.out, self.fault = paddle.nn.Linear(WIDTH, WIDTH), fault

    def forward(self, x: Any) -> Any:
        q, k, v = (conv(layer(x)) for layer, conv in zip(self.layers, self.convs, strict=True))
        return self.out(paddle.tanh(q * (v if self.fault else k)) + v)


class MixedByHand(paddle.nn.Layer):
    """The same with weights of its own for each step, as rows."""

    def __init__(self, fault: bool) -> None:
        super().__init__()
        self.proj, self.out = paddle.nn.Linear(WIDTH, 3 * WIDTH), paddle.nn.Linear(WIDTH, WIDTH)
        self.steps, self.shift = self.create_parameter([3, 3 * WIDTH]), self.create_parameter([3 * WIDTH])
        self.order = range(2, -1, -1) if fault else range(3)

    def forward(self, x: Any) -> Any:
        x = paddle.nn.functional.pad(self.proj(x), [0, 0, 2, 0, 0, 0])
        mixed = sum(x[:, i : i + 5] * self.steps[step] for i, step in enumerate(self.order)) + self.shift
        q, k, v = mixed.chunk(3, -1)
        return self.out(paddle.tanh(q * k) + v)


class MixedInParts(paddle.nn.Layer):
    """The same with rows of its own for each of the three, behind one projection or behind three."""

    packed = True

    def __init__(self, fault: bool) -> None:
        super().__init__()
        sizes = [3 * WIDTH] if self.packed else [WIDTH] * 3
        self.layers = paddle.nn.LayerList([paddle.nn.Linear(WIDTH, size) for size in sizes])
        self.out, self.fault = paddle.nn.Linear(WIDTH, WIDTH), fault
        for name in "qkv":
            self.add_parameter(f"{name}_steps", self.create_parameter([3, WIDTH]))
            self.add_parameter(f"{name}_shift", self.create_parameter([WIDTH]))

    def forward(self, x: Any) -> Any:
        given = [layer(x) for layer in self.layers]
        both = zip("qkv", given if len(given) > 1 else given[0].chunk(3, -1), strict=True)
        q, k, v = (self._mixed(name, x) for name, x in both)
        return self.out(paddle.tanh(q * k) + v)

    def _mixed(self, name: str, x: Any) -> Any:
        x = paddle.nn.functional.pad(x, [0, 0, 2, 0, 0, 0])
        steps, shift = (getattr(self, f"{name}_{one}") for one in ("steps", "shift"))
        late = self.fault and name == "v"
        return sum(x[:, i : i + 5] * steps[2 if late and i else i] for i in range(3)) + shift


class MixedInPartsApart(MixedInParts):
    """The same behind three projections."""

    packed = False


@pytest.mark.parametrize("fault", [False, True], ids=["right", "wrong"])
@pytest.mark.parametrize("candidate", [MixedApart, MixedByHand, MixedInParts, MixedInPartsApart])
def test_a_convolution_of_each_channel_goes_with_what_is_packed_in_front(candidate: Any, fault: bool) -> None:
    """One behind a packed projection is those behind the others; its kernel may lie as rows of channels, too."""
    report = padiff.diff(Mixed(), candidate(fault), X)
    assert report.aligned is not fault, str(report)
    assert len(report.sources) == fault, str(report)
