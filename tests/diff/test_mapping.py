"""Tell padiff which modules correspond and which to leave alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import padiff
from padiff.report import Phase, Verdict

from .models import Kit, array, assert_clean, blocks, mlp, network, paths, source, told

Kits = tuple[Kit, Kit]
X = (array(4, 8),)


def _same(value: Any) -> Any:
    return value


# Pairs ------------------------------------------------------------------------------------------------------


def _gate(kit: Kit, first: str, second: str) -> Any:
    """Return first(x) * sigmoid(second(x)): two layers of one shape, told apart by their names alone."""

    def forward(self: Any, x: Any) -> Any:
        return self.head(getattr(self, first)(x) * kit.functional.sigmoid(getattr(self, second)(x)))

    layers = {first: kit.linear(8, 8), second: kit.linear(8, 8)}
    return network(kit, forward, **layers, head=kit.linear(8, 3))


def _crossed(kits: Kits) -> tuple[Any, Any]:
    """Return two models whose names mislead: the candidate's ``gate`` is the reference's ``value``."""
    return _gate(kits[0], "value", "gate"), _gate(kits[1], "gate", "value")


def test_names_that_mislead_are_overruled_by_a_map(kits: Kits) -> None:
    reference, port = _crossed(kits)
    report = padiff.diff(reference, port, X, mapping={"value": "gate", "gate": "value"})
    assert_clean(report)
    assert np.array_equal(kits[0].linear_weight(reference.value), kits[1].linear_weight(port.gate))


@pytest.mark.parametrize("way", ["objects", "paths", "object to path", "path to object"])
@pytest.mark.parametrize("order", ["reference first", "candidate first"])
@pytest.mark.parametrize("holder", ["LayerMap", "attribute", "dict"])
def test_a_map_takes_modules_and_paths_in_either_order(kits: Kits, way: str, order: str, holder: str) -> None:
    reference, port = _crossed(kits)
    by_path = {"objects": (False, False), "paths": (True, True)}
    ours_by_path, theirs_by_path = by_path.get(way, (way != "object to path", way == "object to path"))
    entries = {}
    for ours, theirs in (("value", "gate"), ("gate", "value")):
        if order == "candidate first" and way == "paths":
            continue  # a path that both models have is read as the reference's first
        pair = (
            ours if ours_by_path else getattr(reference, ours),
            theirs if theirs_by_path else getattr(port, theirs),
        )
        left, right = pair if order == "reference first" else pair[::-1]
        entries[left] = right
    if not entries:
        entries = {"value": "gate", "gate": "value"}
    mapping: Any = entries
    if holder == "LayerMap":
        mapping = padiff.LayerMap(entries)
    elif holder == "attribute":
        mapping = padiff.LayerMap()
        mapping.map = entries
    assert_clean(padiff.diff(reference, port, X, mapping=mapping))


def test_paths_of_the_candidate_may_stand_first(kits: Kits) -> None:
    reference, port = _gate(kits[0], "a", "b"), _gate(kits[1], "b_port", "a_port")
    assert_clean(padiff.diff(reference, port, X, mapping={"b_port": "a", "a_port": "b"}))


def _stack(kit: Kit, name: str, between: Callable[[Any], Any] = _same, *, after: Any = _same) -> Any:
    """Return pre, a block of two layers at ``name``, post; ``between`` is the code inside of the block."""

    def inner(self: Any, x: Any) -> Any:
        return after(self.down(between(self.act(self.up(x)))))

    block = network(kit, inner, name="Block", up=kit.linear(8, 16), act=kit.nn.ReLU(), down=kit.linear(16, 8))

    def forward(self: Any, x: Any) -> Any:
        return self.post(getattr(self, name)(self.pre(x)))

    return network(kit, forward, pre=kit.linear(8, 8), **{name: block}, post=kit.linear(8, 3))


def _scaled(kit: Kit, factor: int) -> Any:
    return network(kit, lambda self, x: self.fc(x) * factor, name="Scaled", fc=kit.linear(8, 3))


def test_a_mapped_pair_is_compared_as_a_whole_only(kits: Kits) -> None:
    def build() -> tuple[Any, Any]:
        return _stack(kits[0], "block"), _stack(kits[1], "ffn", lambda h: h * 1.5)

    inside = padiff.diff(*build(), X)
    assert source(inside, Phase.FORWARD, "ffn").between == ("act", "down")
    models = build()
    report = padiff.diff(*models, X, mapping={models[0].block: models[1].ffn})
    found = source(report, Phase.FORWARD, "ffn")
    assert found.reference.path == "block"
    assert found.what == "output"
    assert found.between in (None, ("start", "end"), ("down", "end")), found.between
    assert not any("ffn." in (f.candidate.path or "") for f in report.findings), told(report)


def test_what_differs_inside_of_a_mapped_pair_and_cancels_out_is_no_alarm(kits: Kits) -> None:
    def build() -> tuple[Any, Any]:
        # relu(2 h) / 2 = relu(h): other values inside, the same outside, without a bias behind it.
        models = _stack(kits[0], "block"), _stack(kits[1], "ffn", lambda h: h * 4.0, after=lambda y: y * 0.25)
        for one, block in zip(kits, (models[0].block, models[1].ffn), strict=True):
            block.down = one.linear(16, 8, bias=False)
        return models

    told_inside = padiff.diff(*build(), X)
    assert told_inside.aligned, told(told_inside)
    assert any(note.kind == "harmless" for note in told_inside.notes), told(told_inside)
    assert_clean(padiff.diff(*build(), X, mapping={"block": "ffn"}))


def test_a_map_does_not_hide_what_lies_outside(kits: Kits) -> None:
    models = _stack(kits[0], "block"), _stack(kits[1], "ffn")
    for one, model, factor in zip(kits, models, (1, 2), strict=True):
        model.post = _scaled(one, factor)
    report = padiff.diff(*models, X, mapping={"block": "ffn"})
    assert set(paths(report)) == {"post"}, told(report)


def test_modules_without_a_counterpart_inside_do_not_matter_in_a_mapped_pair(kits: Kits) -> None:
    """Tie torch's packed attention to one of the user's own, as the documents do."""

    def attention(kit: Kit, own: bool) -> Any:
        if not own:

            def call(self: Any, x: Any) -> Any:
                return kit.attend(self.inner, x)

            return network(kit, call, name="Attention", inner=kit.attention(8, 2))

        def heads(x: Any) -> Any:
            return kit.permute(x.reshape([x.shape[0], x.shape[1], 2, 4]), 0, 2, 1, 3)

        def attend(self: Any, x: Any) -> Any:
            q, k, v = (heads(layer(x)) for layer in (self.q_proj, self.k_proj, self.v_proj))
            y = kit.softmax(q @ kit.permute(k, 0, 1, 3, 2) * 0.5) @ v
            return self.out_proj(kit.permute(y, 0, 2, 1, 3).reshape(x.shape))

        names = ("q_proj", "k_proj", "v_proj", "out_proj")
        return network(kit, attend, name="Own", **{name: kit.linear(8, 8) for name in names})

    def build(kit: Kit, own: bool, factor: float = 1.0) -> Any:
        def forward(self: Any, x: Any) -> Any:
            return self.post(self.attention(self.pre(x)) * factor)

        return network(kit, forward, pre=kit.linear(8, 8), attention=attention(kit, own), post=kit.linear(8, 3))

    x = (array(2, 5, 8),)
    mapping = {"attention": "attention"}
    assert_clean(padiff.diff(build(kits[0], False), build(kits[1], True), x, mapping=mapping))
    report = padiff.diff(build(kits[0], False), build(kits[1], True, 1.1), x, mapping=mapping)
    assert source(report, Phase.FORWARD, "").between == ("attention", "post")


# Ignoring ---------------------------------------------------------------------------------------------------


def _faulty(kits: Kits) -> tuple[Any, Any]:
    return blocks(kits[0]), blocks(kits[1], factors={1: 1.5, 2: 1.5})


def _ignoring(method: str, *entries: Any) -> padiff.LayerMap:
    layer_map = padiff.LayerMap()
    for entry in entries:
        getattr(layer_map, method)(entry)
    return layer_map


@pytest.mark.parametrize("side", [0, 1], ids=["reference's module", "candidate's module"])
def test_an_ignored_module_raises_no_alarm(kits: Kits, side: int) -> None:
    models = _faulty(kits)
    layer_map = _ignoring("ignore", models[side].blocks[1], models[side].blocks[2])
    report = padiff.diff(*models, X, mapping=layer_map)
    assert report.aligned, told(report)
    ignored = {f.candidate.path for f in report.findings if f.verdict is Verdict.IGNORED}
    assert ignored == {"blocks.1", "blocks.2"}
    assert report.counts["ignored"] == 2, report.counts


def test_ignoring_one_of_two_faults_leaves_the_other(kits: Kits) -> None:
    report = padiff.diff(*_faulty(kits), X, mapping=_ignoring("ignore", "blocks.1"))
    assert set(paths(report)) == {"blocks.2"}, told(report)


def test_an_ignored_module_still_has_its_children_compared(kits: Kits) -> None:
    norm = kits[1].layer_norm(8, 1e-3)
    models = blocks(kits[0]), blocks(kits[1], factors={1: 1.5}, norm={1: norm})
    report = padiff.diff(*models, X, mapping=_ignoring("ignore", "blocks.1"))
    found = source(report, Phase.FORWARD, "blocks.1.norm")
    assert "eps" in found.cause


@pytest.mark.parametrize("method", ["ignore_recursively", "ignore_recursivly"])
def test_ignoring_recursively_leaves_out_the_children_too(kits: Kits, method: str) -> None:
    norm = kits[1].layer_norm(8, 1e-3)
    models = blocks(kits[0]), blocks(kits[1], factors={1: 1.5, 3: 1.5}, norm={1: norm})
    report = padiff.diff(*models, X, mapping=_ignoring(method, models[1].blocks[1]))
    assert set(paths(report)) == {"blocks.3"}, told(report)
    both = padiff.diff(*models, X, mapping=_ignoring(method, models[1].blocks[1], models[0].blocks[3]))
    assert both.aligned, told(both)


@pytest.mark.parametrize("side", [0, 1], ids=["reference", "candidate"])
def test_a_class_is_ignored_below_a_module(kits: Kits, side: int) -> None:
    norms = {index: kits[1].layer_norm(8, 1e-3) for index in (1, 2)}
    models = blocks(kits[0]), blocks(kits[1], norm=norms)
    cls = kits[side].nn.LayerNorm
    everywhere = padiff.LayerMap()
    everywhere.ignore_class(models[side], cls)
    report = padiff.diff(*models, X, mapping=everywhere)
    assert report.aligned, told(report)
    below = padiff.LayerMap()
    below.ignore_class(models[side].blocks[1], cls)
    report = padiff.diff(*models, X, mapping=below)
    assert set(paths(report)) == {"blocks.2.norm"}, told(report)


@pytest.mark.parametrize("side", [0, 1], ids=["reference's module", "candidate's module"])
def test_the_parameters_of_an_ignored_module_are_none_of_padiffs_business(kits: Kits, side: int) -> None:
    models = mlp(kits[0]), mlp(kits[1], bias=False)
    report = padiff.diff(*models, X, mapping=_ignoring("ignore", models[side].fc2))
    assert report.aligned, told(report)
    untransferred = mlp(kits[0]), mlp(kits[1])
    report = padiff.diff(*untransferred, X, transfer=False, mapping=_ignoring("ignore", "fc1"))
    assert set(paths(report)) == {"fc2"}, told(report)


def test_the_update_of_an_ignored_module_is_none_of_padiffs_business(kits: Kits) -> None:
    models = mlp(kits[0]), mlp(kits[1])
    optimizers = kits[0].sgd(models[0], 0.1), kits[1].sgd(models[1], 0.2)
    report = padiff.diff(*models, X, optimizers=optimizers, mapping=_ignoring("ignore", "fc1"))
    assert set(paths(report)) == {"fc2"}, told(report)


def test_ignoring_keeps_what_follows_comparable(kits: Kits) -> None:
    """The ignored module's output is put right, so that the next fault is found at its place."""
    models = blocks(kits[0]), blocks(kits[1], factors={0: 3.0, 3: 1.01})
    report = padiff.diff(*models, X, mapping=_ignoring("ignore", "blocks.0"))
    found = source(report, Phase.FORWARD, "blocks.3")
    assert found.figures.rel_l2 < 0.05


def test_an_ignored_gradient_raises_no_alarm(kits: Kits) -> None:
    def build(kit: Kit, cut: bool) -> Any:
        def forward(self: Any, x: Any) -> Any:
            return self.fc(x) + (kit.detach(x) if cut else x)

        block = network(kit, forward, name="Block", fc=kit.linear(8, 8))
        return network(
            kit, lambda self, x: self.head(self.block(self.pre(x))),
            pre=kit.linear(8, 8), block=block, head=kit.linear(8, 3),
        )  # fmt: skip

    models = build(kits[0], False), build(kits[1], True)
    source(padiff.diff(*models, X), Phase.BACKWARD, "block")
    report = padiff.diff(*models, X, mapping=_ignoring("ignore", "block"))
    assert report.aligned, told(report)


def test_a_layer_map_can_be_used_again(kits: Kits) -> None:
    models = _faulty(kits)
    layer_map = _ignoring("ignore", models[0].blocks[1], models[0].blocks[2])
    for _ in range(2):
        assert padiff.diff(*models, X, mapping=layer_map).aligned
    assert not padiff.diff(*models, X).aligned


# Errors -----------------------------------------------------------------------------------------------------


def _said(kits: Kits, mapping: Any, models: Any = None) -> str:
    with pytest.raises(padiff.MappingError) as caught:
        padiff.diff(*(models or (mlp(kits[0]), mlp(kits[1]))), X, mapping=mapping)
    text = str(caught.value)
    assert "\nHint: " in text
    return text


def test_a_path_in_neither_model_is_an_error_with_the_nearest_names(kits: Kits) -> None:
    said = _said(kits, {"fc1": "fcl1"})
    assert "LayerMap names 'fcl1', which is in neither model (Mlp, Mlp)" in said
    assert "did you mean 'fc1'" in said


@pytest.mark.parametrize("method", ["ignore", "ignore_recursively"])
def test_ignoring_what_is_in_neither_model_is_an_error(kits: Kits, method: str) -> None:
    said = _said(kits, _ignoring(method, kits[0].nn.ReLU()))
    assert "ReLU, which is in neither model" in said
    assert "give a module of one of the two, or its path" in said


def test_a_module_of_a_third_model_is_an_error(kits: Kits) -> None:
    models = mlp(kits[0]), mlp(kits[1])
    said = _said(kits, {mlp(kits[0]).fc1: models[1].fc1}, models)
    assert f"{type(models[0].fc1).__qualname__}, which is in neither model" in said


@pytest.mark.parametrize("entry", [3, None, ("fc1",)], ids=repr)
def test_an_entry_that_is_no_module_is_an_error(kits: Kits, entry: Any) -> None:
    assert f"builtins.{type(entry).__qualname__}, which is in neither model" in _said(kits, {"fc1": entry})


def test_two_modules_of_one_model_are_an_error(kits: Kits) -> None:
    models = mlp(kits[0]), mlp(kits[1])
    said = _said(kits, {models[0].fc1: models[0].fc2}, models)
    assert "both are modules of the same model" in said
    assert "map a module of the reference to a module of the candidate" in said


def test_one_module_tied_twice_is_an_error(kits: Kits) -> None:
    said = _said(kits, {"fc1": "fc1", "fc2": "fc1"})
    assert "'fc1'" in said
    assert "twice" in said


def test_a_class_that_is_not_there_is_an_error(kits: Kits) -> None:
    models = mlp(kits[0]), mlp(kits[1])
    layer_map = padiff.LayerMap()
    layer_map.ignore_class(models[0], kits[0].nn.Dropout)
    assert "ignores the class Dropout, and no module of it is at or below" in _said(kits, layer_map, models)


def test_a_class_that_is_no_class_is_an_error(kits: Kits) -> None:
    models = mlp(kits[0]), mlp(kits[1])
    for wrong, said in ((3, "builtins.int, which is no class"), ("Lineer", "ignores the class Lineer, and no module")):
        layer_map = padiff.LayerMap()
        layer_map.ignore_class(models[0], wrong)
        assert said in _said(kits, layer_map, models)


def test_a_class_may_be_given_by_its_name(kits: Kits) -> None:
    models = blocks(kits[0]), blocks(kits[1], norm={1: kits[1].layer_norm(8, 1e-3)})
    layer_map = padiff.LayerMap()
    layer_map.ignore_class(models[0], "LayerNorm")
    assert padiff.diff(*models, X, mapping=layer_map).aligned


def test_a_map_that_is_no_dict_is_an_error(kits: Kits) -> None:
    layer_map = padiff.LayerMap()
    layer_map.map = [("fc1", "fc1")]
    assert "list" in _said(kits, layer_map)
