"""Give the loss that PaDiff takes where its caller gives none."""

from __future__ import annotations

from typing import Any

from padiff.errors import InputError
from padiff.plugins import adapter_of_tensor
from padiff.pytree import leaves


def default_loss(output: Any, framework: str | None = None) -> Any:
    """Return the mean of the means of an output's floating tensors, as a scalar tensor of their framework.

    ``framework`` is what PaDiff wanted to be told, and may be left out. `auto_diff` itself gives each output a random
    gradient instead: a mean vanishes behind a normalisation. Raises `InputError` where there is no such tensor.
    """
    means = [tensor.mean() for _, tensor in leaves(output, _is_floating)]
    if not means:
        msg = f"the output ({type(output).__qualname__}) holds no floating tensor.\n"
        msg += "Hint: give the loss what the model's forward gave."
        raise InputError(msg)
    return sum(means[1:], means[0]) / len(means)


def _is_floating(value: Any) -> bool:
    adapter = None if value is None else adapter_of_tensor(value)
    return adapter is not None and "float" in adapter.tensor(value).dtype
