"""What padiff's mapping files say beyond msprobe's: parameters, layouts, packed layers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import padiff
from padiff.alignment import read_mapping, written_mapping
from padiff.plugins import adapter_for
from padiff.recording import describe
from padiff.testing.toy import columns, functional, rows

from .gpt import DOCUMENT, Kit, left, right, tokens
from .kits import toy_kits

Write = Callable[[str], str]
LEFT, RIGHT = toy_kits()
WIDTH = 4
X = (np.random.default_rng(1).standard_normal((3, WIDTH), dtype=np.float32),)


def mapping_of(report: padiff.Report, *models: Any) -> str:
    return written_mapping(report.mapping, *(describe(adapter_for(model).wrap(model)) for model in models))


# Parameters -------------------------------------------------------------------------------------------------


def bilinear(kit: Kit, first: str, second: str, *, crossed: bool = False) -> Any:
    """Return (x A) B behind a norm, from two square matrices of a class that no table knows."""

    def forward(self: Any, x: Any) -> Any:
        a, b = getattr(self, first), getattr(self, second)
        return (x @ b) @ a if crossed else (x @ a) @ b

    weight = rows.parameter if kit is LEFT else columns.weight
    inner = kit.module("Bilinear", forward, **{first: weight(WIDTH, WIDTH), second: weight(WIDTH, WIDTH)})
    return kit.module("Net", lambda self, x: self.mix(self.norm(x)), norm=kit.norm(WIDTH), mix=inner)


def test_parameters_are_told_by_name(write: Write) -> None:
    ours, theirs = bilinear(LEFT, "inner", "outer"), bilinear(RIGHT, "p", "q")
    report = padiff.diff(ours, theirs, X, mapping=write("Bilinear: {inner: p, outer: q}"))
    assert report.aligned, str(report)
    ours, theirs = bilinear(LEFT, "inner", "outer"), bilinear(RIGHT, "p", "q")
    report = padiff.diff(ours, theirs, X, mapping=write("Bilinear: {inner: q, outer: p}"))
    assert not report.aligned
    assert np.array_equal(theirs.mix.p.data, ours.mix.outer.data)


def test_a_told_layout_stands(write: Write) -> None:
    ours, theirs = bilinear(LEFT, "inner", "outer"), bilinear(RIGHT, "p", "q")
    text = "Bilinear: {inner: {to: p, layout: transposed}, outer: {to: q, layout: as in the reference}}"
    report = padiff.diff(ours, theirs, X, mapping=write(text))
    assert np.array_equal(theirs.mix.p.data, ours.mix.inner.data.T)
    assert np.array_equal(theirs.mix.q.data, ours.mix.outer.data)
    assert not report.aligned


def test_parameters_that_no_table_knows_are_written(write: Write) -> None:
    models = bilinear(LEFT, "inner", "outer"), bilinear(RIGHT, "p", "q")
    report = padiff.diff(*models, X)
    assert report.aligned, str(report)
    text = mapping_of(report, *models)
    assert text == "Bilinear:\n  inner: p\n  outer: q"
    assert padiff.diff(bilinear(LEFT, "inner", "outer"), bilinear(RIGHT, "p", "q"), X, mapping=write(text)).aligned


def test_shapes_that_do_not_fit_are_an_error(write: Write) -> None:
    with pytest.raises(padiff.MappingError) as caught:
        padiff.diff(bilinear(LEFT, "a", "b"), bilinear(RIGHT, "p", "q"), X, mapping=write("Net: {norm.weight: mix.p}"))
    assert "mapping.yaml:1:7: 'norm.weight' [4] is mapped to 'mix.p' [4, 4]" in str(caught.value)


def test_a_buffer_that_training_leaves_is_no_parameter_to_map(write: Write) -> None:
    def added(kit: Kit, name: str) -> Any:
        values = (rows.buffer if kit is LEFT else columns.statistic)(np.ones(WIDTH, np.float32))
        return kit.module(
            "Net", lambda self, x: self.norm(x) + getattr(self, name), norm=kit.norm(WIDTH), **{name: values}
        )

    with pytest.raises(padiff.MappingError) as caught:
        padiff.diff(added(LEFT, "a"), added(RIGHT, "b"), X, mapping=write("Net: {a: b}"))
    assert "mapping.yaml:1:7: 'a' is no parameter that is copied by itself" in str(caught.value)


# Packed layers ----------------------------------------------------------------------------------------------


def attention(kit: Kit, names: tuple[str, ...], *, packed: bool, heads: int = 1) -> Any:
    """Return attention over one packed linear layer (head by head where there are several), or over three."""

    def forward(self: Any, x: Any) -> Any:
        if packed:
            every = getattr(self, names[0])(x)
            size = WIDTH // heads
            pieces = [every[:, :, i * size : (i + 1) * size] for i in range(3 * heads)]
            q, k, v = (functional.concat(pieces[i::3]) if heads > 1 else pieces[i] for i in range(3))
        else:
            q, k, v = (getattr(self, name)(x) for name in names)
        return self.out(kit.attention(q, k, v, 2))

    layers = {name: kit.linear(WIDTH, (3 if packed else 1) * WIDTH) for name in names}
    return kit.module("Net", forward, **layers, out=kit.linear(WIDTH, WIDTH))


T = (np.random.default_rng(2).standard_normal((2, 5, WIDTH), dtype=np.float32),)
THREE = ("a", "b", "c")


@pytest.mark.parametrize("ours", [True, False], ids=["left packs", "right packs"])
def test_a_packed_layer_is_told_either_way(write: Write, ours: bool) -> None:
    models = attention(LEFT, ("every",), packed=True), attention(RIGHT, THREE, packed=False)
    text = "Net: {every: [a, b, c]}"
    if not ours:
        models = attention(LEFT, THREE, packed=False), attention(RIGHT, ("every",), packed=True)
        text = "Net: {a: every, b: every, c: every}"
    report = padiff.diff(*models, T, mapping=write(text))
    assert report.aligned, str(report)
    assert not [note for note in report.notes if note.kind.startswith("mapping")]
    lines = ["every: [a, b, c]"] if ours else ["a: every", "b: every", "c: every"]
    assert [line.strip() for line in mapping_of(report, *models).splitlines()] == ["TopLayer:", *lines]


def test_told_groups_stand(write: Write) -> None:
    def models() -> tuple[Any, Any]:
        return attention(LEFT, ("every",), packed=True, heads=2), attention(RIGHT, THREE, packed=False)

    assert padiff.diff(*models(), T, mapping=write("Net: {every: {to: [a, b, c], groups: 2}}")).aligned
    assert not padiff.diff(*models(), T, mapping=write("Net: {every: {to: [a, b, c], groups: 1}}")).aligned


def test_what_is_inside_but_has_its_counterpart_outside_is_found(write: Write) -> None:
    def stacked(kit: Kit, inside: bool) -> Any:
        def whole(self: Any, x: Any) -> Any:
            return self.head(self.body(x) if inside else self.norm(self.body(x)))

        def body(self: Any, x: Any) -> Any:
            return self.norm(self.fc(x)) if inside else self.fc(x)

        norm = {"norm": kit.norm(WIDTH)}
        block = kit.module("Body", body, fc=kit.linear(WIDTH, WIDTH), **(norm if inside else {}))
        return kit.module("Net", whole, body=block, head=kit.linear(WIDTH, 2), **({} if inside else norm))

    report = padiff.diff(stacked(LEFT, True), stacked(RIGHT, False), X, mapping=write("Net: {body: body}"))
    assert report.aligned, str(report)


# The command ------------------------------------------------------------------------------------------------

PORT = """
import sys
sys.path.insert(0, {tests!r})
from mapping import gpt, kits
A, B = kits.toy_kits()
left, right, inputs = (lambda: gpt.left(A)), (lambda: gpt.right(B)), gpt.tokens
"""


def test_padiff_map_writes_a_file_and_never_over_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from padiff.cli import main

    monkeypatch.chdir(tmp_path)
    (tmp_path / "port_of_004.py").write_text(PORT.format(tests=str(Path(__file__).parents[1])))
    words = ["map", "port_of_004:left", "port_of_004:right", "--inputs", "port_of_004:inputs", "-q"]
    assert main([*words, "-o", "mapping.yaml"]) == 0
    assert capsys.readouterr().out == "wrote mapping.yaml\n"
    text = (tmp_path / "mapping.yaml").read_text()
    assert "# only on the left: module.module.language_model\n" in text
    assert len(read_mapping("mapping.yaml").rules) == 11
    assert main([*words, "-o", "mapping.yaml"]) == 2
    assert "mapping.yaml is there already" in capsys.readouterr().err
    assert main(words) == 0
    assert capsys.readouterr().out == text
    assert main([*words, "-o", "mapping.yaml", "--overwrite"]) == 0
    assert main(["diff", *words[1:], "--mapping", "mapping.yaml"]) == 0
    assert main([*words[:3], "-q"]) == 2
    assert "--inputs is missing" in capsys.readouterr().err


# One layer that holds what are two on the left, as Transformer Engine's do -----------------------------------


def fused(model: Any) -> Any:
    """Return a right model of the document with its second norm inside of the linear layer behind it."""

    def forward(self: Any, x: Any) -> Any:
        x = functional.layer_norm(x, self.layer_norm_weight, self.layer_norm_bias, 1e-5)
        return functional.linear(x, self.weight.transpose(1, 0), self.bias)

    for layer in model.model.module.decoder.layers:
        norm, bias = layer.pre_mlp_layernorm, layer.mlp.linear_fc1.offset
        own = {"layer_norm_weight": norm.gamma, "layer_norm_bias": norm.beta, "bias": bias}
        weight = columns.weight(4 * WIDTH * 2, 2 * WIDTH)
        layer.mlp.linear_fc1 = RIGHT.module("TELayerNormColumnParallelLinear", forward, weight=weight, **own)
        layer.pre_mlp_layernorm = RIGHT.module("IdentityOp", lambda self, x: x)
    return model


def test_a_norm_inside_of_a_linear_layer_is_told_by_its_parameters(write: Write) -> None:
    text = DOCUMENT + (
        "ParallelTransformerLayer:\n"
        "  post_attention_norm.weight: mlp.linear_fc1.layer_norm_weight\n"
        "  post_attention_norm.bias: mlp.linear_fc1.layer_norm_bias\n"
    )
    report = padiff.diff(left(LEFT), fused(right(RIGHT)), tokens(), mapping=write(text))
    assert report.aligned, str(report)
    assert report.transfer is not None
    assert (report.transfer.copied, report.transfer.unverified) == (27, ())
    faulty = fused(right(RIGHT, lambda x: x * 1.5))
    report = padiff.diff(left(LEFT), faulty, tokens(), mapping=write(text))
    assert [f.candidate.path for f in report.sources] == ["model.module.decoder.layers.1.self_attention"], str(report)
