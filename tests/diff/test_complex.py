"""Match complex parameters with real ones: a port may have no other, in pairs along an axis or as two parameters."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import paddle
import pytest
import torch

import padiff

X = np.random.default_rng(0).standard_normal((3, 16, 1), dtype=np.float32)
WIDTH, MODES = 6, 4


class Spectral(torch.nn.Module):
    """Mixes channels of each low frequency by complex weights."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(WIDTH, WIDTH, MODES, dtype=torch.cfloat) / WIDTH)

    def forward(self, x: Any) -> Any:
        low = torch.einsum("bim,iom->bom", torch.fft.rfft(x)[..., :MODES], self.weight)
        return torch.fft.irfft(low, n=x.shape[-1])


class Operator(torch.nn.Module):
    """A Fourier neural operator."""

    def __init__(self) -> None:
        super().__init__()
        self.lift, self.out = torch.nn.Linear(1, WIDTH), torch.nn.Linear(WIDTH, 1)
        self.spectral = torch.nn.ModuleList(Spectral() for _ in range(2))
        self.pointwise = torch.nn.ModuleList(torch.nn.Conv1d(WIDTH, WIDTH, 1) for _ in range(2))

    def forward(self, x: Any) -> Any:
        x = self.lift(x).transpose(1, 2)
        for spectral, pointwise in zip(self.spectral, self.pointwise, strict=True):
            x = torch.nn.functional.gelu(spectral(x) + pointwise(x))
        return self.out(x.transpose(1, 2))


SHAPES = {"pairs": (WIDTH, WIDTH, MODES, 2), "crossed": (WIDTH, WIDTH, MODES, 2), "halves": (2, WIDTH, WIDTH, MODES)}


class RealSpectral(paddle.nn.Layer):
    """The same in real numbers; ``way`` says how they lie, ``fault`` what is wrong with them."""

    def __init__(self, way: str, fault: str = "") -> None:
        super().__init__()
        self.way, self.fault = way, fault
        normal = paddle.nn.initializer.Normal(0.0, 1 / WIDTH)
        if way in SHAPES:
            self.w = self.create_parameter(SHAPES[way], default_initializer=normal)
        else:
            self.w_re, self.w_im = (
                self.create_parameter([WIDTH, WIDTH, MODES], default_initializer=normal) for _ in range(2)
            )

    def parts(self) -> tuple[Any, Any]:
        if self.way == "parameters":
            return self.w_re, self.w_im
        if self.way == "halves":
            return self.w[0], self.w[1]
        w = self.w.transpose([1, 0, 2, 3]) if self.way == "crossed" else self.w
        return w[..., 0], w[..., 1]

    def forward(self, x: Any) -> Any:
        found = paddle.fft.rfft(x)[..., :MODES]
        (a, b), (c, d) = (found.real(), found.imag()), self.parts()
        mixed = [paddle.einsum("bim,iom->bom", one, other) for one, other in ((a, c), (b, d), (a, d), (b, c))]
        real = mixed[0] + mixed[1] if self.fault == "sign" else mixed[0] - mixed[1]
        imaginary = mixed[2] + mixed[3]
        imaginary = imaginary.detach() if self.fault == "detach" else imaginary
        low = paddle.complex(real, imaginary)
        if self.fault == "padded":
            zeros = paddle.zeros([*low.shape[:-1], 2], dtype="complex64")
            low = paddle.concat([low[..., :-1], zeros], axis=-1)
        return paddle.fft.irfft(low, n=x.shape[-1])


class RealOperator(paddle.nn.Layer):
    def __init__(self, way: str, fault: str = "") -> None:
        super().__init__()
        self.lift, self.out = paddle.nn.Linear(1, WIDTH), paddle.nn.Linear(WIDTH, 1)
        self.spectral = paddle.nn.LayerList([RealSpectral(way), RealSpectral(way, fault)])
        self.pointwise = paddle.nn.LayerList([paddle.nn.Conv1D(WIDTH, WIDTH, 1) for _ in range(2)])

    def forward(self, x: Any) -> Any:
        x = self.lift(x).transpose([0, 2, 1])
        for spectral, pointwise in zip(self.spectral, self.pointwise, strict=True):
            x = paddle.nn.functional.gelu(spectral(x) + pointwise(x))
        return self.out(x.transpose([0, 2, 1]))


@pytest.mark.parametrize("way", ["pairs", "crossed", "halves", "parameters"])
def test_complex_parameters_may_be_held_as_real_ones(way: str) -> None:
    for models in ((Operator(), RealOperator(way)), (RealOperator(way), Operator())):
        report = padiff.diff(*models, (X,))
        assert report.aligned, report
        assert not report.transfer.unverified, report
        layouts = {one.layout for one in report.mapping.parameters if "spectral" in one.candidate}
        assert layouts == {"complex numbers as real ones"}, report.mapping


@pytest.mark.parametrize(("way", "fault"), [("pairs", "sign"), ("parameters", "sign"), ("halves", "detach")])
def test_a_fault_with_real_numbers_is_placed(way: str, fault: str) -> None:
    report = padiff.diff(Operator(), RealOperator(way, fault), (X,))
    assert [found.candidate.path for found in report.sources] == ["spectral.1"], report


@pytest.mark.filterwarnings("error:.*discards the imaginary part")
def test_what_code_makes_of_nothing_stays_complex_where_it_is_run_in_float64() -> None:
    """Zeros to pad with became real ones, with a warning of numpy's for whoever looks at the report."""
    report = padiff.diff(Operator(), RealOperator("parameters", "padded"), (X,))
    assert [found.candidate.path for found in report.sources] == ["spectral.1"], report


def test_recorded_complex_parameters_may_be_held_as_real_ones(tmp_path: Any) -> None:
    ours, theirs = Operator(), RealOperator("pairs")
    padiff.transfer(ours, theirs)
    for model, tensor, name in ((ours, torch.tensor, "ours"), (theirs, paddle.to_tensor, "theirs")):
        with padiff.record(model, tmp_path / name):
            model(tensor(X)).square().mean().backward()
    assert padiff.compare(tmp_path / "ours", tmp_path / "theirs").aligned


ANGLES = torch.outer(torch.arange(5).float(), 10.0 ** -torch.arange(4).float())


class Turned(torch.nn.Module):
    """Attention whose queries and keys are turned, pairs of neighbours as complex numbers in float32."""

    def __init__(self, by: float = 1.0) -> None:
        super().__init__()
        self.qkv, self.out, self.table = (
            torch.nn.Linear(8, 24),
            torch.nn.Linear(8, 8),
            torch.polar(by * ANGLES**0, ANGLES),
        )

    def turn(self, x: Any) -> Any:
        pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2)) * self.table
        return torch.view_as_real(pairs).flatten(2).type_as(x)

    def forward(self, x: Any) -> Any:
        q, k, v = self.qkv(x).chunk(3, -1)
        return self.out((self.turn(q) @ self.turn(k).transpose(1, 2) / 100).softmax(-1) @ v)  # nearly even, as at first


class Halves(Turned):
    def turn(self, x: Any) -> Any:
        a, b = x.chunk(2, -1)
        return torch.cat([a * ANGLES.cos() - b * ANGLES.sin(), b * ANGLES.cos() + a * ANGLES.sin()], -1)


@pytest.mark.parametrize("port", [Turned, partial(Turned, 1.05), Halves], ids=["right", "scaled", "halves"])
def test_rounding_of_complex_values_hides_no_fault(
    port: Callable[[], Turned], recwarn: pytest.WarningsRecorder
) -> None:
    torch.manual_seed(1)
    x = np.random.default_rng(1).standard_normal((2, 5, 8), dtype=np.float32)
    report = padiff.diff(Turned(), port(), x, phase="forward")
    wrong = [] if port is Turned else [("", ("qkv", "out"))]
    assert [(source.candidate.path, source.between) for source in report.sources] == wrong
    assert not [one for one in recwarn if one.category.__name__ == "ComplexWarning"]  # none is put in a real place


class Scan(torch.nn.Module):
    """A diagonal state space in complex numbers, by a convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.log_dt, self.log_A_real, self.A_imag = (torch.nn.Parameter(torch.rand(MODES)) for _ in range(3))
        self.B = torch.nn.Parameter(torch.randn(MODES, WIDTH, dtype=torch.cfloat))
        self.C = torch.nn.Parameter(torch.randn(WIDTH, MODES, dtype=torch.cfloat))
        self.D = torch.nn.Parameter(torch.randn(WIDTH))

    def forward(self, x: Any) -> Any:
        poles, size = 1j * self.A_imag - torch.exp(self.log_A_real), 2 * x.shape[1]
        steps = poles * torch.exp(self.log_dt)
        given = torch.einsum("nd,btd->bnt", ((torch.exp(steps) - 1) / poles)[:, None] * self.B, x.to(self.B.dtype))
        kernel = torch.fft.fft(torch.exp(steps[:, None] * torch.arange(x.shape[1])), n=size)
        states = torch.fft.ifft(torch.fft.fft(given, n=size) * kernel, n=size)[..., : x.shape[1]]
        return torch.einsum("dn,bnt->btd", self.C, states).real + self.D * x


class RealScan(paddle.nn.Layer):
    """The same in real numbers, step by step; ``skipped`` adds its last vector alone."""

    def __init__(self, *, skipped: bool) -> None:
        super().__init__()
        shapes = [[MODES]] * 3 + [[MODES, WIDTH]] * 2 + [[WIDTH, MODES]] * 2 + [[WIDTH]]
        made = [self.create_parameter(shape, default_initializer=paddle.nn.initializer.Normal()) for shape in shapes]
        self.step, self.re, self.im, self.b_re, self.b_im, self.c_re, self.c_im, self.skip = made
        self.skipped = skipped

    def forward(self, x: Any) -> Any:
        dt, re, im = paddle.exp(self.step), -paddle.exp(self.re), self.im
        size = paddle.exp(re * dt)
        a, b = size * paddle.cos(im * dt), size * paddle.sin(im * dt)
        whole, c, d = re * re + im * im, (a - 1) * re + b * im, b * re - (a - 1) * im
        c, d = (c / whole).unsqueeze(1), (d / whole).unsqueeze(1)
        left, right = c * self.b_re - d * self.b_im, c * self.b_im + d * self.b_re
        left, right = x @ left.t(), x @ right.t()
        real, imaginary, found = paddle.zeros_like(left[:, 0]), paddle.zeros_like(left[:, 0]), []
        for step in range(x.shape[1]):
            real, imaginary = a * real - b * imaginary + left[:, step], a * imaginary + b * real + right[:, step]
            found.append(real @ self.c_re.t() - imaginary @ self.c_im.t())
        return paddle.stack(found, axis=1) + (self.skip if self.skipped else self.skip * x)


@pytest.mark.parametrize("skipped", [False, True])
def test_parts_of_one_parameter_stay_in_their_order_whatever_is_made_of_each(skipped: bool) -> None:
    """The dataflow of the real ones exchanged them; beside a fault no way is right, and all of the code was told."""
    torch.manual_seed(0)
    paddle.seed(0)
    x = np.random.default_rng(1).random((2, 3, WIDTH), np.float32)
    report = padiff.diff(Scan(), RealScan(skipped=skipped), (x,))
    assert report.aligned is not skipped, report
    if skipped:
        (source,) = report.sources
        assert source.cause is not None, report
        assert source.cause.startswith("computed as mul(a, b), add("), report
