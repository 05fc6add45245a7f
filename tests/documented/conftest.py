"""Give each test a folder of its own: the documented interface writes its reports to the working directory."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Not at the top: this file is read before MindSpore is imported, which must come before Paddle.
    import paddle
    import torch

    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    paddle.seed(0)
