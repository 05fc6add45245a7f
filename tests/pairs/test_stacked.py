"""Diff the experts of `transformers`, stacked or listed, with Paddle ports that keep them the other way."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import padiff

X = np.random.default_rng(0).standard_normal((2, 7, 8), dtype=np.float32)


def listed(alpha: float) -> Any:
    """GPT-OSS's experts as layers in a list, each called on its tokens."""
    import paddle
    from paddle.nn import functional as F

    class Expert(paddle.nn.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.gate_proj, self.up_proj = (paddle.nn.Linear(8, 3) for _ in range(2))
            self.down_proj = paddle.nn.Linear(3, 8)

        def forward(self, x: Any) -> Any:
            gate, up = paddle.clip(self.gate_proj(x), max=7.0), paddle.clip(self.up_proj(x), -7.0, 7.0)
            return self.down_proj((up + 1) * gate * F.sigmoid(gate * alpha))

    class Mixture(paddle.nn.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.router, self.experts = paddle.nn.Linear(8, 4), paddle.nn.LayerList(Expert() for _ in range(4))

        def forward(self, x: Any) -> Any:
            tokens = x.reshape([-1, 8])
            best, which = paddle.topk(self.router(tokens), 2)
            share, total = F.softmax(best, -1), paddle.zeros_like(tokens)
            for n, expert in enumerate(self.experts):
                token, slot = (one.reshape([-1]) for one in paddle.where(which == n))
                found = expert(tokens.index_select(token)) * share[token, slot].unsqueeze(-1)
                total = total + paddle.scatter(paddle.zeros_like(tokens), token, found)
            return total.reshape(x.shape)

    return Mixture()


@pytest.mark.parametrize(("alpha", "right"), [(1.702, True), (1.75, False)], ids=["right", "wrong"])
def test_gpt_oss_experts_are_compared_with_a_list(alpha: float, right: bool) -> None:
    """Gate and up lie row by row in one, and the router gives shares here, logits there: 0.4 had no counterparts."""
    import torch
    from transformers.models.gpt_oss.configuration_gpt_oss import GptOssConfig
    from transformers.models.gpt_oss.modeling_gpt_oss import GptOssMLP

    class Reference(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            sizes = {"hidden_size": 8, "intermediate_size": 3, "num_local_experts": 4, "num_experts_per_tok": 2}
            self.mlp = GptOssMLP(GptOssConfig(**sizes))
            for parameter in self.parameters():
                torch.nn.init.normal_(parameter, 0, 0.5)

        def forward(self, x: Any) -> Any:
            return self.mlp(x)[0]

    torch.manual_seed(0)
    report = padiff.diff(Reference(), listed(alpha), X)
    assert report.aligned is right, str(report)
    assert {source.phase for source in report.sources} <= {"forward"}, str(report)
    if right:
        assert report.transfer is not None
        assert report.transfer.verified == 26
