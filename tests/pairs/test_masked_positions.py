"""Diff encoders whose blocks leave other values where sentences are over: zeros, or what a masked attention gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle
import pytest
import torch

import padiff

WIDTH, HEADS, WORDS = 16, 4, 9
LENGTHS = np.array([9, 6, 4])
IDS = np.random.default_rng(0).integers(1, 30, (3, WORDS)) * (np.arange(WORDS) < LENGTHS[:, None])


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = torch.nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
        self.norm1, self.norm2 = torch.nn.LayerNorm(WIDTH), torch.nn.LayerNorm(WIDTH)
        self.up, self.down = torch.nn.Linear(WIDTH, 32), torch.nn.Linear(32, WIDTH)

    def forward(self, x: Any, over: Any) -> Any:
        h = self.norm1(x)
        x = x + self.attention(h, h, h, key_padding_mask=over, need_weights=False)[0]
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm2(x))))


class Encoder(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = torch.nn.Embedding(30, WIDTH), torch.nn.Embedding(WORDS, WIDTH)
        self.blocks = torch.nn.ModuleList(Block() for _ in range(2))
        self.head = torch.nn.Linear(WIDTH, 5)

    def forward(self, ids: Any) -> Any:
        x = self.words(ids) + self.places.weight
        for block in self.blocks:
            x = block(x, ids == 0)
        counts = (ids != 0)[..., None]
        return self.head((x * counts).sum(1) / counts.sum(1))


class Layer(paddle.nn.Layer):
    """The same with attention by hand, which gives zeros to words that are none, as the layer does."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = paddle.nn.Linear(WIDTH, 3 * WIDTH), paddle.nn.Linear(WIDTH, WIDTH)
        self.ln1, self.ln2 = paddle.nn.LayerNorm(WIDTH), paddle.nn.LayerNorm(WIDTH)
        self.fc1, self.fc2 = paddle.nn.Linear(WIDTH, 32), paddle.nn.Linear(32, WIDTH)

    def forward(self, x: Any, counts: Any) -> Any:
        b, n, _ = x.shape
        q, k, v = self.qkv(self.ln1(x)).reshape([b, n, 3, HEADS, WIDTH // HEADS]).transpose([2, 0, 3, 1, 4])
        both = (counts @ counts.transpose([0, 2, 1])).unsqueeze(1)
        scores = q @ k.transpose([0, 1, 3, 2]) * (WIDTH // HEADS) ** -0.5 + (1 - both) * -1e9
        weights = paddle.nn.functional.softmax(scores, -1) * both
        x = x + self.out((weights @ v).transpose([0, 2, 1, 3]).reshape([b, n, WIDTH]))
        return (x + self.fc2(paddle.nn.functional.gelu(self.fc1(self.ln2(x))))) * counts


class Sentences(paddle.nn.Layer):
    def __init__(self, fault: str = "") -> None:
        super().__init__()
        self.fault = fault
        self.tokens, self.positions = paddle.nn.Embedding(30, WIDTH), paddle.nn.Embedding(WORDS, WIDTH)
        self.layers = paddle.nn.LayerList([Layer() for _ in range(2)])
        self.classifier = paddle.nn.Linear(WIDTH, 5)

    def forward(self, ids: Any) -> Any:
        counts = (ids != 0).astype("float32").unsqueeze(-1)
        x = self.tokens(ids) + self.positions.weight
        for layer in self.layers:
            x = layer(x, counts)
            x = x * 1.02 if self.fault == "scaled" and layer is self.layers[0] else x
        return self.classifier(x.sum(1) / (WORDS if self.fault == "all" else counts.sum(1)))


def test_what_nothing_reads_is_no_source() -> None:
    torch.manual_seed(0)
    report = padiff.diff(Encoder(), Sentences(), (IDS,))
    assert report.aligned, str(report)
    assert {note.kind for note in report.notes} >= {"harmless_hidden"}


@pytest.mark.parametrize(
    ("fault", "value"), [("scaled", "input 'x' of layers.1"), ("all", "input 'input' of classifier")]
)
def test_a_fault_is_told_at_its_place_alone(fault: str, value: str) -> None:
    torch.manual_seed(0)
    report = padiff.diff(Encoder(), Sentences(fault), (IDS,))
    assert [str(one.what) for one in report.sources] == [value], str(report)


class Read(torch.nn.Module):
    """Reads words as far as they go, and weighs what it has of each."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.cell = torch.nn.Embedding(30, WIDTH), torch.nn.GRU(WIDTH, WIDTH, batch_first=True)
        self.score, self.head = torch.nn.Linear(WIDTH, 1), torch.nn.Linear(WIDTH, 5)

    def forward(self, ids: Any, lengths: Any) -> Any:
        packed = torch.nn.utils.rnn.pack_padded_sequence(
            self.words(ids), lengths, batch_first=True, enforce_sorted=False
        )
        x, _ = torch.nn.utils.rnn.pad_packed_sequence(self.cell(packed)[0], batch_first=True, total_length=WORDS)
        over = torch.arange(WORDS) >= lengths[:, None]
        return self.head((self.score(x).masked_fill(over[..., None], -1e9).softmax(1) * x).sum(1))


class ReadOn(paddle.nn.Layer):
    """Reads on where words are over, so that its last state is another one, and counts nothing of that."""

    def __init__(self, fault: str = "") -> None:
        super().__init__()
        self.tokens, self.rnn, self.fault = paddle.nn.Embedding(30, WIDTH), paddle.nn.GRU(WIDTH, WIDTH), fault
        self.weigh, self.out = paddle.nn.Linear(WIDTH, 1), paddle.nn.Linear(WIDTH, 5)

    def forward(self, ids: Any, lengths: Any) -> Any:
        counts = (paddle.arange(WORDS) < lengths.unsqueeze(-1)).astype("float32").unsqueeze(-1)
        x = self.rnn(self.tokens(ids))[0] * counts
        share = paddle.nn.functional.softmax(self.weigh(x) + (1 - counts) * -1e9, 1)
        share = share * 1.02 if self.fault == "scaled" else share
        return self.out((share * x).sum(1))


@pytest.mark.parametrize("lengths", [LENGTHS, np.array([5, 5, 5])], ids=["several lengths", "one length"])
def test_a_last_state_that_nothing_reads_is_no_source(lengths: Any) -> None:
    torch.manual_seed(0)
    ids = np.random.default_rng(1).integers(1, 30, (3, WORDS))
    report = padiff.diff(Read(), ReadOn(), (ids, lengths))
    assert report.aligned, str(report)
    report = padiff.diff(Read(), ReadOn("scaled"), (ids, lengths))
    assert len(report.sources) == 1, str(report)
