"""Compare models that nobody here wrote: torchvision's own with paddle.vision's own.

Run ``make demo``, or ``python examples/demo.py``. Both libraries build their models with random weights;
padiff copies torchvision's into Paddle's and compares a forward and a backward pass, in evaluation mode. No
network is needed.

ResNet-50 turns out to be the same model in both. AlexNet is not: paddle.vision's dropout, of mode
``downscale_in_infer``, scales its input in evaluation, where torchvision's does nothing. The exit status is 0
where padiff says exactly that, and 1 where it does not.
"""

from __future__ import annotations

import sys
import textwrap
import warnings
from typing import Any

warnings.filterwarnings("ignore", message="No ccache found")  # Paddle's, of no concern here
warnings.filterwarnings("ignore", message="Failed to load image Python extension")  # torchvision's

SHAPE = (2, 3, 224, 224)
DROPOUTS = {("classifier.0", "_drop1"), ("classifier.3", "_drop2")}


def main() -> int:
    """Compare both pairs, show both reports, and return 0 where they say what is known."""
    print("Importing torch, torchvision and paddle ...", flush=True)
    import torch  # isort: skip
    import torchvision  # isort: skip
    import paddle

    import padiff

    torch.manual_seed(0)
    paddle.seed(0)

    def compared(name: str) -> padiff.Report:
        reference = getattr(torchvision.models, name)().eval()
        candidate = getattr(paddle.vision.models, name)()
        candidate.eval()
        _announce(f"torchvision.models.{name}() against paddle.vision.models.{name}(), input {SHAPE}")
        report = padiff.diff(reference, candidate, (_images(),))
        print(report, flush=True)
        return report

    checks = {
        "ResNet-50 is aligned": _is_aligned(compared("resnet50")),
        "AlexNet differs at Paddle's two dropouts, for their mode": _differs_at_dropouts(compared("alexnet")),
    }
    _announce("what is known of these models, and whether padiff says so")
    for said, right in checks.items():
        print(f"{'yes' if right else 'NO '}  {said}")
    return 0 if all(checks.values()) else 1


def _images() -> Any:
    import numpy as np

    return np.random.default_rng(0).standard_normal(SHAPE, dtype="float32")


def _is_aligned(report: Any) -> bool:
    transfer = report.transfer
    return report.aligned and transfer is not None and transfer.verified == transfer.copied


def _differs_at_dropouts(report: Any) -> bool:
    places = {(source.reference.path, source.candidate.path) for source in report.sources}
    causes = [source.cause or "" for source in report.sources]
    return places == DROPOUTS and all("mode" in cause and "downscale_in_infer" in cause for cause in causes)


def _announce(text: str) -> None:
    print(f"\n{textwrap.fill(text, 110)}\n{'-' * min(len(text), 110)}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
