"""Transfer what is one thing in two shapes, and nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import padiff

from .models import Kit, array, assert_clean, network, source

Kits = tuple[Kit, Kit]
X = (array(2, 8, 3, 3),)


def _scaled(kit: Kit, shape: tuple[int, ...], factor: float = 1.0) -> Any:
    """Return a model that scales channels by a parameter of its own, kept in this shape."""

    def forward(self: Any, x: Any) -> Any:
        return x * self.gamma.reshape([1, 8, 1, 1]) * factor

    values = np.arange(1, 9, dtype=np.float32) + len(shape)
    return network(kit, forward, name="Scaled", gamma=kit.parameter(values.reshape(shape)))


@pytest.mark.parametrize("shapes", [((8, 1, 1), (8,)), ((8,), (1, 8, 1, 1)), ((8, 1, 1), (1, 8))], ids=str)
def test_axes_of_length_one_are_no_obstacle(kits: Kits, shapes: Any) -> None:
    reference, port = (_scaled(kit, shape) for kit, shape in zip(kits, shapes, strict=True))
    assert_clean(padiff.diff(reference, port, X))
    assert np.array_equal(kits[0].numpy(reference.gamma).ravel(), kits[1].numpy(port.gamma).ravel())
    found = source(padiff.diff(reference, _scaled(kits[1], shapes[1], 1.1), X), "forward", "")
    assert found.figures.rel_l2 == pytest.approx(0.1, rel=1e-3)


def test_another_extent_is_not_bent_to_fit(kits: Kits) -> None:
    def build(kit: Kit, shape: tuple[int, ...]) -> Any:
        def forward(self: Any, x: Any) -> Any:
            return x * self.gamma.sum()

        return network(kit, forward, name="Scaled", gamma=kit.parameter(np.ones(shape, np.float32)))

    report = padiff.diff(build(kits[0], (8,)), build(kits[1], (3, 3)), X)
    assert report.transfer.unmatched_reference == ("gamma",)
    assert report.transfer.unmatched_candidate == ("gamma",)


def _branches(kit: Kit, *, gate_first: bool) -> Any:
    """Return value(x) * sigmoid(gate(x)): two layers of one shape, in names that tell nothing, called in an order."""

    def forward(self: Any, x: Any) -> Any:
        if gate_first:
            gate = kit.functional.sigmoid(self.dense1(x))
            return self.head(self.dense2(x) * gate)
        value = self.alpha(x)
        return self.head(value * kit.functional.sigmoid(self.beta(x)))

    names = ("dense1", "dense2") if gate_first else ("alpha", "beta")
    return network(kit, forward, **{name: kit.linear(8, 8) for name in names}, head=kit.linear(8, 3))


def test_values_tell_which_of_two_like_layers_is_which(kits: Kits) -> None:
    reference, port = _branches(kits[0], gate_first=False), _branches(kits[1], gate_first=True)
    x = (array(4, 8),)
    assert_clean(padiff.diff(reference, port, x))
    assert np.array_equal(kits[0].linear_weight(reference.beta), kits[1].linear_weight(port.dense1))
    assert padiff.diff(reference, port, x, transfer=False).aligned
    kits[1].assign(port.dense1.bias, np.ones(8, np.float32))
    report = padiff.diff(reference, port, x, transfer=False)
    found = source(report, "parameter", "dense1")
    assert found.reference.path == "beta"
    assert found.what == "parameter bias"


def test_a_table_that_is_shared_is_not_turned_to_make_a_fault_right(kits: Kits) -> None:
    """Score by the table transposed: it is square, and the head that holds it too is never called."""

    def build(kit: Kit, transposed: bool) -> Any:
        head = network(kit, lambda self, x: x @ self.weight.t(), name="Head", weight=kit.parameter(array(8, 8)))

        def forward(self: Any, ids: Any) -> Any:
            hidden = self.words(ids)
            return hidden @ kit.table(self.words) if transposed else self.head(hidden)

        model = network(kit, forward, words=kit.nn.Embedding(8, 8), head=head)
        kit.tie(model.head, model.words)
        return model

    ids = {"ids": np.random.default_rng(0).integers(0, 8, (2, 5))}
    report = padiff.diff(build(kits[0], False), build(kits[1], True), ids)
    assert not report.aligned
    assert {found.phase for found in report.sources} == {"forward"}, report.sources
    assert "" in {found.candidate.path for found in report.sources}


def _packed(kit: Kit, factor: float = 1.0) -> Any:
    """Return self-attention with one layer for query, key and value, as its users write it."""

    def attend(self: Any, x: Any) -> Any:
        batch, time, _ = x.shape
        parts = self.qkv(x).reshape([batch, time, 3, 2, 4])
        q, k, v = (kit.permute(parts[:, :, i], 0, 2, 1, 3) for i in range(3))
        weights = kit.softmax(q @ kit.permute(k, 0, 1, 3, 2) * (0.5 * factor))
        return self.proj(kit.permute(weights @ v, 0, 2, 1, 3).reshape([batch, time, 8]))

    attention = network(kit, attend, name="Attention", qkv=kit.linear(8, 24), proj=kit.linear(8, 8))
    return network(
        kit, lambda self, x: self.fc(x + self.attn(self.norm(x))),
        name="Block", norm=kit.layer_norm(8), attn=attention, fc=kit.linear(8, 3),
    )  # fmt: skip


def _provided(kit: Kit) -> Any:
    """Return the same with the framework's own attention."""

    def forward(self: Any, x: Any) -> Any:
        return self.fc(x + kit.attend(self.attention, self.norm(x)))

    layers = {"norm": kit.layer_norm(8), "attention": kit.attention(8, 2), "fc": kit.linear(8, 3)}
    return network(kit, forward, name="Block", **layers)


@pytest.mark.parametrize("packed", [0, 1], ids=["reference", "candidate"])
def test_the_frameworks_own_attention_is_told_from_a_packed_one(kits: Kits, packed: int) -> None:
    x = (array(2, 5, 8),)
    builders = (_packed, _provided)[:: 1 if packed == 0 else -1]
    assert_clean(padiff.diff(builders[0](kits[0]), builders[1](kits[1]), x))
    if packed:
        report = padiff.diff(_provided(kits[0]), _packed(kits[1], 1.01), x)
        assert {found.reference.path for found in report.sources} == {"attention"}, report.sources
        assert {found.candidate.path for found in report.sources} <= {"attn", "attn.proj"}, report.sources


def _embedded(kit: Kit, *, deep: bool, name: str, factor: float = 1.0) -> Any:
    """Return a model that adds a token and a table of positions, which hangs at an encoder if ``deep``."""

    def encode(self: Any, x: Any) -> Any:
        return self.fc(x + getattr(self, name) * factor)

    def forward(self: Any, x: Any) -> Any:
        x = x + self.token
        return self.encoder(x) if deep else encode(self, x)

    held = {name: kit.parameter(array(1, 3, 8, seed=4)), "fc": kit.linear(8, 4)}
    if deep:
        held = {"encoder": network(kit, encode, name="Encoder", **held)}
    return network(kit, forward, name="Embedded", token=kit.parameter(array(1, 1, 8, seed=3)), **held)


@pytest.mark.parametrize("deep", [True, False], ids=["deep", "flat"])
def test_a_table_kept_at_another_depth_is_found(kits: Kits, deep: bool) -> None:
    x = (array(2, 3, 8),)
    reference = _embedded(kits[0], deep=deep, name="pos_embedding")
    port = _embedded(kits[1], deep=not deep, name="position_embeddings")
    report = padiff.diff(reference, port, x)
    assert_clean(report)
    assert report.transfer is not None
    assert report.transfer.copied == 4
    wrong = _embedded(kits[1], deep=not deep, name="position_embeddings", factor=1.1)
    assert [found.phase for found in padiff.diff(reference, wrong, x).sources] == ["forward"]


def test_a_parameter_of_another_name_is_known_by_its_place(kits: Kits) -> None:
    reference = _embedded(kits[0], deep=True, name="pos_embedding")
    port = _embedded(kits[1], deep=False, name="types")
    report = padiff.diff(reference, port, (array(2, 3, 8),))
    assert report.aligned, str(report)
