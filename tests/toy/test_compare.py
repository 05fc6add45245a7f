"""Compare recorded runs on the toy framework: the same places as diff() names, and no alarm at right ports."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import padiff
from padiff.cli import main
from padiff.errors import InputError
from padiff.report import Phase, Verdict
from padiff.testing.toy import columns, rows
from padiff.testing.toy import functional as F


class Block(rows.Module):
    def __init__(self) -> None:
        self.norm, self.up, self.down = rows.LayerNorm(8), rows.Linear(8, 16), rows.Linear(16, 8)

    def forward(self, x: Any) -> Any:
        return x + self.down(F.relu(self.up(self.norm(x))))


class Net(rows.Module):
    def __init__(self) -> None:
        self.first, self.blocks = rows.Linear(6, 8), rows.ModuleList(Block(), Block())
        self.act, self.head = rows.GELU(), rows.Linear(8, 4)

    def forward(self, x: Any) -> Any:
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        return self.head(self.act(x))


class Port(columns.Layer):
    """A port of `Net`, with a fault where asked for."""

    def __init__(self, fault: str = "") -> None:
        self.fault = fault
        self.embed = columns.Dense(6, 8)
        self.layers = columns.Layers(PortBlock(""), PortBlock(fault))
        self.act, self.head = columns.Gelu(), columns.Dense(8, 4)

    def forward(self, x: Any) -> Any:
        x = self.embed(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.act(x))


class PortBlock(columns.Layer):
    def __init__(self, fault: str) -> None:
        self.fault = fault
        epsilon = 1e-4 if fault == "epsilon" else 1e-5
        self.norm, self.up = columns.LayerNormalization(8, epsilon), columns.Dense(8, 16)
        self.down = columns.Dense(16, 8)

    def forward(self, x: Any) -> Any:
        y = self.norm(x)
        if self.fault == "glue":
            y = y * 1.01
        if self.fault == "slope":
            y = y * 2.0 - type(y)(y.data)
        y = self.down(F.relu(self.up(y)))
        if self.fault == "detach":
            y = type(y)(y.data)
        return x + y if self.fault != "residual" else y


def loop(model: Any, folder: Path, optimizer: Any = None, steps: int = 1, **options: Any) -> None:
    """Record a script's loop, as its user would write it."""
    rng = np.random.default_rng(1)
    home = rows if isinstance(model, rows.Module) else columns
    with padiff.record(model, folder, optimizer=optimizer, **options) as recorder:
        for _ in range(steps):
            y = model(home.Tensor(rng.standard_normal((5, 3, 6), dtype=np.float32)))
            loss = (y * y).mean()
            loss.backward()
            if optimizer is not None:
                optimizer.step()
                optimizer.clear()
            recorder.step(loss.data)


def pair(fault: str = "") -> tuple[Any, Any]:
    """Return a model and a port with equal weights."""
    np.random.seed(0)
    net, port = Net(), Port(fault)
    padiff.diff(net, port, (np.zeros((2, 3, 6), np.float32),))
    return net, port


def compared(tmp_path: Path, fault: str = "", options: Any = (), **asked: Any) -> padiff.Report:
    net, port = pair(fault)
    loop(net, tmp_path / "a", **dict(options))
    loop(port, tmp_path / "b", **dict(options))
    return padiff.compare(tmp_path / "a", tmp_path / "b", **asked)


def places(report: padiff.Report) -> list[tuple[str | None, str]]:
    return [(one.candidate.path, one.phase.value) for one in report.sources]


@pytest.mark.parametrize("values", ["tensors", "sketch", "summary"])
def test_a_right_port_raises_no_alarm(tmp_path: Path, values: str) -> None:
    report = compared(tmp_path, options={"values": values})
    assert report.aligned, str(report)
    assert report.coverage is not None
    assert not report.coverage.missing
    assert "nothing was fed" in str(report).split("verdicts")[0]
    assert report.recorded is not None
    assert ("as far as summaries show" in str(report)) is (values == "summary")
    assert ("as far as sketches show" in str(report)) is (values == "sketch")
    assert len(report.mapping.parameters) == 16


@pytest.mark.parametrize(
    ("fault", "place"),
    [
        ("epsilon", ("layers.1.norm", "forward")),
        ("glue", ("layers.1", "forward")),
        ("residual", ("layers.1", "forward")),
        ("detach", ("layers.1", "backward")),
    ],
)
def test_a_fault_is_named_where_diff_names_it(tmp_path: Path, fault: str, place: tuple[str, str]) -> None:
    report = compared(tmp_path, fault)
    assert places(report) == [place], str(report)
    net, port = pair(fault)
    diffed = padiff.diff(net, port, (np.random.default_rng(1).standard_normal((5, 3, 6), dtype=np.float32),))
    assert places(diffed) == [place], str(diffed)


class Flat(Port):
    """A port whose first layer takes (batch * time, features): its values have other shapes there."""

    def forward(self, x: Any) -> Any:
        x = self.embed(x.reshape(15, 6)).reshape(5, 3, 8)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.act(x))


def test_what_has_another_shape_is_no_source_behind_a_fault(tmp_path: Path) -> None:
    """Its gradients come from the code around, where they differ: each parameter's was called a source."""
    for fault, expected in (("", []), ("glue", [("layers.1", "forward")])):
        net, port = Net(), Flat(fault)
        padiff.diff(net, port, (np.zeros((5, 3, 6), np.float32),))
        folders = [tmp_path / f"{name}{fault}" for name in "ab"]
        for model, folder in zip((net, port), folders, strict=True):
            loop(model, folder)
        report = padiff.compare(*folders)
        assert places(report) == expected, str(report)


class Numbered(rows.Module):
    """A model that gives large whole numbers beside what a layer gives."""

    def __init__(self) -> None:
        self.layer = rows.Linear(6, 4)

    def forward(self, x: Any) -> Any:
        return self.layer(x), rows.Tensor(np.arange(12) + 10**9)


class Rounding(columns.Dense):
    """A layer that rounds otherwise."""

    def forward(self, x: Any) -> Any:
        return super().forward(x) * np.float32(3) / np.float32(3)


class NumberedPort(columns.Layer):
    def __init__(self, first: int, layer: type[columns.Dense] = columns.Dense) -> None:
        self.layer, self.first = layer(6, 4), first

    def forward(self, x: Any) -> Any:
        return self.layer(x), columns.Tensor(np.arange(12) + self.first)


@pytest.mark.parametrize("more", [0, 1])
@pytest.mark.parametrize("layer", [columns.Dense, Rounding])
def test_whole_numbers_are_the_same_or_differ(tmp_path: Path, layer: type[columns.Dense], more: int) -> None:
    """One in a thousand million is less than any rounding of what the code beside takes.

    Where that was rounded otherwise, no source was found.
    """
    net, port = Numbered(), NumberedPort(10**9 + more, layer)
    padiff.diff(net, port, (np.zeros((3, 6), np.float32),))
    for model, home in ((net, rows), (port, columns)):
        with padiff.record(model, tmp_path / home.__name__) as recorder:
            y, _ = model(home.Tensor(np.ones((3, 6), np.float32)))
            y.sum().backward()
            recorder.step()
    report = padiff.compare(tmp_path / rows.__name__, tmp_path / columns.__name__)
    assert places(report) == [("", "forward")] * more, str(report)
    assert report.aligned is not bool(more)


class Attending(rows.Module):
    """An attention with its norm behind it, or before it."""

    def __init__(self, before: bool) -> None:
        self.norm, self.before = rows.LayerNorm(6), before
        self.q, self.k, self.v, self.o = (rows.Linear(6, 6) for _ in range(4))

    def forward(self, x: Any) -> Any:
        y = self.norm(x) if self.before else x
        y = x + self.o(F.attention(self.q(y), self.k(y), self.v(y), 2))
        return y if self.before else self.norm(y)


class Elsewhere(columns.Layer):
    """The same, of which the names tell nothing, and the order of definition something wrong."""

    def __init__(self, before: bool) -> None:
        self.z, self.c, self.b, self.a = (columns.Dense(6, 6) for _ in range(4))
        self.scale, self.before = columns.LayerNormalization(6), before

    def forward(self, x: Any) -> Any:
        y = self.scale(x) if self.before else x
        y = x + self.z(F.attention(self.a(y), self.b(y), self.c(y), 2))
        return y if self.before else self.scale(y)


@pytest.mark.parametrize("values", ["tensors", "summary"])
def test_what_is_which_is_told_by_the_recorded_dataflow(tmp_path: Path, values: str) -> None:
    """A norm elsewhere moved the calls against each other: value and output projection were matched crosswise."""
    net, right, port = rows.Sequential(Attending(False)), columns.Stack(Elsewhere(False)), Elsewhere(True)
    padiff.diff(net, right, (np.zeros((5, 3, 6), np.float32),))
    port.a, port.b, port.c, port.z, port.scale = (getattr(right[0], name) for name in ("a", "b", "c", "z", "scale"))
    loop(net, tmp_path / "a", values=values)
    loop(columns.Stack(port), tmp_path / "b", values=values)
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    assert {one.phase for one in report.sources} == {Phase.FORWARD}, str(report)
    assert places(report)[0] == ("0", "forward")
    found = {one.reference: one.candidate for one in report.mapping.modules}
    assert [found[f"0.{name}"] for name in "qkvo"] == ["0.a", "0.b", "0.c", "0.z"]


def trained(tmp_path: Path, rates: tuple[float, float], steps: int = 3, fault: str = "") -> padiff.Report:
    models = pair(fault)
    for model, name, rate in zip(models, "ab", rates, strict=True):
        loop(model, tmp_path / name, rows.SGD(model.parameters(), rate, 0.9), steps)
    return padiff.compare(tmp_path / "a", tmp_path / "b")


def test_three_steps_of_a_right_port_are_aligned(tmp_path: Path) -> None:
    report = trained(tmp_path, (0.1, 0.1))
    assert report.aligned, str(report)
    assert report.recorded is not None
    assert report.recorded.steps == (0, 1, 2)
    assert "3 steps, 0 to 2" in str(report)


def test_the_first_step_that_differs_leads(tmp_path: Path) -> None:
    report = trained(tmp_path, (0.1, 0.12))
    assert {(one.phase, one.step) for one in report.sources} == {(Phase.UPDATE, 0)}, str(report)
    assert any(one.step == 2 for one in report.victims)
    report = padiff.compare(tmp_path / "a", tmp_path / "b", step=0)
    assert {(one.phase, one.step) for one in report.sources} == {(Phase.UPDATE, 0)}


@pytest.mark.parametrize("values", ["tensors", "sketch", "summary"])
@pytest.mark.parametrize(
    ("setting", "numbers"), [("lr", (0.1, 0.12)), ("momentum", (0.9, 0.8)), ("weight_decay", (0.0, 0.1))]
)
def test_settings_of_optimizers_are_the_cause(
    tmp_path: Path, setting: str, numbers: tuple[float, float], values: str
) -> None:
    """Momentum shows in the second step alone."""
    for model, name, number in zip(pair(), "ab", numbers, strict=True):
        settings = {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.0} | {setting: number}
        loop(model, tmp_path / name, rows.SGD(model.parameters(), **settings), 2, values=values)
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    (source,) = report.sources
    assert (source.phase, source.step) == (Phase.UPDATE, int(setting == "momentum")), str(report)
    assert source.cause.name == "optimizer_settings", str(report)
    said = {"reference": repr(numbers[0]), "candidate": repr(numbers[1])}
    assert source.cause.parameters == {setting: said}, str(report)


def test_an_optimizer_has_to_be_one(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="optimizer is dict; expected an optimizer of toy"):
        padiff.record(pair()[0], tmp_path / "a", optimizer={})


def test_a_fault_in_several_steps_is_told_once(tmp_path: Path) -> None:
    report = trained(tmp_path, (0.1, 0.1), fault="glue")
    assert places(report) == [("layers.1", "forward")]
    assert {one.step for one in report.sources} == {0}


def test_weights_that_differ_lead(tmp_path: Path) -> None:
    net, port = pair()
    port.head.offset.data[0] += 0.5
    loop(net, tmp_path / "a")
    loop(port, tmp_path / "b")
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    assert places(report) == [("head", "parameter")], str(report)
    assert report.victims


def test_another_tolerance_needs_no_other_run(tmp_path: Path) -> None:
    assert not compared(tmp_path, "glue").aligned
    wide = padiff.compare(tmp_path / "a", tmp_path / "b", tolerance={"atol": 1.0, "rtol": 0.1})
    assert wide.aligned
    assert wide.output_within
    narrow = padiff.compare(tmp_path / "a", tmp_path / "b", tolerance={"atol": 1e-6, "rtol": 1e-4})
    assert places(narrow)[0] == ("layers.1", "forward")


def test_other_inputs_are_no_fault_of_the_port(tmp_path: Path) -> None:
    net, port = pair()
    loop(net, tmp_path / "a")
    with padiff.record(port, tmp_path / "b"):
        port(columns.Tensor(np.ones((5, 3, 6), np.float32)))
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    assert [one.cause.name for one in report.sources if one.cause] == ["inputs"], str(report)


class Drawing(rows.Module):
    """Drop half of what a layer gives, rounded ``otherwise`` before, or times some factor behind."""

    def __init__(self, factor: float = 1.0, *, otherwise: bool = False) -> None:
        self.first, self.drop, self.head = rows.Linear(6, 8), rows.Dropout(0.5), rows.Linear(8, 4)
        self.factor, self.otherwise = factor, otherwise

    def forward(self, x: Any) -> Any:
        given = self.first(x)
        given = given * np.float32(3) * np.float32(1 / 3) if self.otherwise else given
        return self.head(self.drop(given) * np.float32(self.factor))


def test_random_numbers_are_never_a_pass_and_no_fault(tmp_path: Path) -> None:
    model = Drawing()
    for name, seed in (("a", 1), ("b", 2)):
        np.random.seed(seed)
        loop(model, tmp_path / name)
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    assert not report.aligned
    assert (report.sources, report.victims, len(report.unmatched)) == ((), (), 1)
    assert "drew random numbers" in str(report.unmatched[0].evidence[0])


@pytest.mark.parametrize("factor", [1.0, 1.01])
def test_random_numbers_that_were_drawn_alike_hide_nothing(tmp_path: Path, factor: float) -> None:
    """Two runs from one seed, of one framework: what rounds before a dropout let all behind it be random."""
    np.random.seed(0)
    model = Drawing()
    np.random.seed(0)
    other = Drawing(factor, otherwise=True)
    for one, name in ((model, "a"), (other, "b")):
        np.random.seed(1)
        loop(one, tmp_path / name)
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    assert report.aligned is (factor == 1), str(report)
    assert {one.between for one in report.sources} == ({("drop", "head")} if factor > 1 else set()), str(report)


def test_what_cannot_be_compared_is_refused(tmp_path: Path) -> None:
    net, port = pair()
    loop(net, tmp_path / "a")
    loop(port, tmp_path / "b", values="structure")
    loop(port, tmp_path / "c", steps=3)
    with pytest.raises(InputError, match="holds no values"):
        padiff.compare(tmp_path / "a", tmp_path / "b")
    with pytest.raises(InputError, match=r"the reference's run .* has no step 2"):
        padiff.compare(tmp_path / "a", tmp_path / "c", step=2)
    with pytest.raises(InputError, match="is no directory"):
        padiff.compare(tmp_path / "a", tmp_path / "d")
    with padiff.record(net, tmp_path / "late", steps=[1]) as recorder:
        for _ in range(2):
            net(rows.Tensor(inputs()[0])).mean().backward()
            recorder.step()
    with pytest.raises(InputError, match=r"no step in common: .* has 0 and .* has 1"):
        padiff.compare(tmp_path / "a", tmp_path / "late")


def test_what_was_not_kept_is_no_pass(tmp_path: Path) -> None:
    net, port = pair()
    loop(net, tmp_path / "a", modules=["head"])
    loop(port, tmp_path / "b", modules=["head"])
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    assert report.coverage is not None
    assert report.coverage.missing
    assert report.counts[Verdict.NOT_COMPARED]
    assert report.aligned, str(report)


def test_no_framework_is_needed(tmp_path: Path) -> None:
    compared(tmp_path, "glue")
    script = (
        "import padiff, sys\n"
        f"report = padiff.compare({str(tmp_path / 'a')!r}, {str(tmp_path / 'b')!r})\n"
        "known = {name.split('.')[0] for name in sys.modules}\n"
        "assert not known & {'torch', 'paddle', 'mindspore', 'jax', 'padiff_toy_arrays'}, known\n"
        "assert 'padiff.testing' not in sys.modules\n"
        "print([one.candidate.path for one in report.sources])"
    )
    paths = [path for path in sys.path if path and "tests/toy/site" not in path]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=env)
    assert done.stdout == "['layers.1']\n", done.stderr


def inputs() -> Any:
    return (np.random.default_rng(1).standard_normal((5, 3, 6), dtype=np.float32),)


def test_the_command_line_records_compares_and_shows(tmp_path: Path, capsys: Any) -> None:
    this, (a, b) = "tests.toy.test_compare", (str(tmp_path / "a"), str(tmp_path / "b"))
    for folder in (a, b):
        np.random.seed(0)
        assert main(["record", f"{this}:Net", "--inputs", f"{this}:inputs", "-o", folder]) == 0
    assert "toy Net, 16 parameters, 1 step (0), values: tensors" in capsys.readouterr().out
    assert main(["compare", a, b, "--json", str(tmp_path / "report.json")]) == 0
    assert capsys.readouterr().out.startswith("aligned (12 calls compared")
    assert json.loads((tmp_path / "report.json").read_text())["recorded"]["steps"] == [0]
    assert main(["compare", a, b, "--step", "7"]) == 2
    assert "has no step 7" in capsys.readouterr().err
    assert main(["show", a]) == 0
    out = capsys.readouterr().out
    assert "step 0: 12 calls" in out
    assert "no NaN or Inf" in out
    assert "\n    norm  LayerNorm" in out
    assert main(["show", a, "--module", "nirgends"]) == 2
    assert main(["record", f"{this}:Net", "--inputs", f"{this}:inputs", "-o", a]) == 2
    assert "holds something already" in capsys.readouterr().err
    assert main(["record", f"{this}:Net", "--inputs", f"{this}:inputs"]) == 2


def test_the_first_nan_is_shown(tmp_path: Path, capsys: Any) -> None:
    net, _ = pair()
    net.blocks[0].up.bias.data[0] = np.nan
    loop(net, tmp_path / "a")
    assert main(["show", str(tmp_path / "a")]) == 0
    assert "first NaN: blocks.0.up holds bias" in capsys.readouterr().out
