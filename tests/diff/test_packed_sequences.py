"""Run recurrent layers over a packed batch in PyTorch, and with the lengths of the sequences in Paddle."""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle
import torch

import padiff

X = np.random.default_rng(0).standard_normal((3, 6, 4)).astype(np.float32)
LENGTHS = np.array([4, 6, 3])


class Encoder(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.proj, self.lstm = torch.nn.Linear(4, 4), torch.nn.LSTM(4, 3, batch_first=True, bidirectional=True)

    def forward(self, x: Any, lengths: Any) -> Any:
        packed = torch.nn.utils.rnn.pack_padded_sequence(
            torch.relu(self.proj(x)), lengths, batch_first=True, enforce_sorted=False
        )
        return torch.nn.utils.rnn.pad_packed_sequence(self.lstm(packed)[0], batch_first=True)[0]


class Packed(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.head = Encoder(), torch.nn.Linear(6, 2)

    def forward(self, x: Any, lengths: Any) -> Any:
        return self.head(self.encoder(x, lengths))


class EncoderOfLengths(paddle.nn.Layer):
    def __init__(self, fault: str) -> None:
        super().__init__()
        self.fc, self.rnn = paddle.nn.Linear(4, 4), paddle.nn.LSTM(4, 3, direction="bidirect")
        self.fault = fault

    def forward(self, x: Any, lengths: Any) -> Any:
        lengths = None if self.fault else lengths
        return self.rnn(paddle.nn.functional.relu(self.fc(x)), sequence_length=lengths)[0]


class OfLengths(paddle.nn.Layer):
    def __init__(self, fault: str = "") -> None:
        super().__init__()
        self.enc, self.out = EncoderOfLengths(fault), paddle.nn.Linear(6, 2)

    def forward(self, x: Any, lengths: Any) -> Any:
        return self.out(self.enc(x, lengths))


def test_a_packed_batch_is_one_with_lengths() -> None:
    """The order of the packed batch was fed as the lengths: a right port was told to differ there."""
    report = padiff.diff(Packed(), OfLengths(), (X, LENGTHS))
    assert report.aligned, str(report)


def test_lengths_that_are_not_given_are_a_fault() -> None:
    report = padiff.diff(Packed(), OfLengths("whole"), (X, LENGTHS))
    assert {one.candidate.path for one in report.sources} == {"enc"}, str(report)
