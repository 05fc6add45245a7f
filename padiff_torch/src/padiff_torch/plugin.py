"""Say that there is an adapter for PyTorch; import nothing of it."""

from __future__ import annotations

from padiff.adapter import AdapterInfo, hookimpl

# Whatever derives from torch.nn.Module is found through "torch" too; these classes are met before it.
_ROOTS = {"torch", "torchvision", "torchaudio", "transformers", "timm"}


@hookimpl
def padiff_adapters() -> list[AdapterInfo]:
    """Return the one adapter of this distribution."""
    factory, kinds = "padiff_torch.adapter:TorchAdapter", "padiff_torch.kinds:TABLE"
    return [AdapterInfo("torch", roots=_ROOTS, factory=factory, kinds=kinds)]
