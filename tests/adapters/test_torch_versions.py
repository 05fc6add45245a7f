"""Hold the room of the torch adapter that knows versions to what it says, with stand-ins for other versions."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from padiff.errors import AdapterError
from padiff.testing import Log
from padiff_torch import model, operations, recompute
from padiff_torch.adapter import TorchAdapter
from padiff_torch.versions import OFFERS, TORCH, Torch

from .without import Without


def put_in_place(monkeypatch: pytest.MonkeyPatch, other: Torch) -> None:
    for room in (model, operations, recompute):
        monkeypatch.setattr(room, "TORCH", other)


def test_the_oldest_lacks_what_the_table_says() -> None:
    """Of torch 2.1.2, where all private ones are there."""
    old = Torch(Without(torch, "backends.mha", "get_autocast_dtype", "accelerator"))
    assert old.missing() == [OFFERS[name] for name in ("attention switch", "casts by device", "accelerators")]
    assert not old.lost()
    old.check()


def test_what_goes_with_private_interfaces() -> None:
    assert Torch(SimpleNamespace()).lost() == {"recomputation", "operations"}


@pytest.mark.parametrize("frozen", [False, True])
def test_attention_takes_no_fused_path_without_the_switch(monkeypatch: pytest.MonkeyPatch, frozen: bool) -> None:
    put_in_place(monkeypatch, Torch(Without(torch, "backends.mha")))
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2).eval().requires_grad_(not frozen)
    wrapped, log = TorchAdapter().wrap(encoder), Log()
    x = torch.from_numpy(np.random.default_rng(0).standard_normal((2, 4, 8), dtype="float32"))
    mask = torch.tensor([[False] * 4, [False, False, True, True]])
    with wrapped.attach(log):
        wrapped.run((x,), {"src_key_padding_mask": mask})
    assert set(log.calls) >= {"layers.1.self_attn", "layers.1.linear2", "layers.0.norm1"}
    assert not log.outputs["layers.0.norm1"].is_nested


def test_casts_are_found_without_a_question_by_device() -> None:
    home = SimpleNamespace(
        is_autocast_cpu_enabled=lambda: True,
        get_autocast_cpu_dtype=lambda: "bfloat16",
        is_autocast_enabled=lambda: False,
        get_autocast_gpu_dtype=lambda: "float16",
    )
    assert Torch(home).casts() == [("cpu", "bfloat16")]
    with torch.autocast("cpu", torch.bfloat16):
        assert TORCH.casts() == [("cpu", torch.bfloat16)]


def old_generator(
    fn: Any, preserve_rng_state: bool, context_fn: Any, check: str, debug: bool, *args: Any, **kwargs: Any
) -> None:
    """Have the parameters of torch 2.1."""


def new_generator(
    fn: Any, preserve_rng_state: bool, a: Any, b: Any, c: Any, d: Any, *args: Any, e: Any = 0, **kwargs: Any
) -> None:
    """Have the parameters of torch 2.14, one of which comes by its name alone."""


@pytest.mark.parametrize(("generator", "between"), [(old_generator, 3), (new_generator, 4)])
def test_a_checkpoints_arguments_are_found_by_the_signature(generator: Any, between: int) -> None:
    code = SimpleNamespace(_checkpoint_without_reentrant_generator=generator)
    found = Torch(SimpleNamespace(utils=SimpleNamespace(checkpoint=code)))
    named = {"e": None} if generator is new_generator else {}
    assert found.checkpointed([abs, True, *[None] * between, "x", "y"], named)[:3] == (abs, True, ("x", "y"))


def test_a_checkpoint_is_what_it_was_where_its_generator_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    put_in_place(monkeypatch, Torch(Without(torch, "utils.checkpoint._checkpoint_without_reentrant_generator")))

    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(2, 2)

        def forward(self, x: Any) -> Any:
            return checkpoint(self.inner, x, use_reentrant=False)

    wrapped = TorchAdapter().wrap(Checkpointed())
    wrapped.run((torch.ones(1, 2),), {}, lambda output: [(output.sum(), None)])
    assert wrapped.parameters()["inner.weight"].gradient() is not None


def test_what_padiff_cannot_work_with_is_said_in_a_sentence() -> None:
    def without_keywords(self: Any, hook: Any) -> None:
        """Register a hook as torch 1 does."""

    module = SimpleNamespace(register_forward_pre_hook=without_keywords)
    ancient = Torch(SimpleNamespace(__version__="1.13.1", nn=SimpleNamespace(Module=module)))
    with pytest.raises(AdapterError, match=r"torch 1\.13\.1 has no with_kwargs.*\nHint: padiff works with torch 2\.1"):
        ancient.check()

    def no_numpy(*_: Any) -> Any:
        msg = "Numpy is not available"
        raise RuntimeError(msg)

    home = SimpleNamespace(__version__="2.1.2", nn=torch.nn, zeros=lambda _: SimpleNamespace(numpy=no_numpy))
    with pytest.raises(AdapterError, match=r"torch 2\.1\.2 cannot pass values to numpy.*\nHint: .*numpy<2"):
        Torch(home).check()
