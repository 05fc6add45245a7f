"""Copy weights from one model to another, without running either."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from padiff.alignment import LayerMap
from padiff.compat._arguments import is_swapped
from padiff.compat._log import say
from padiff.compat._proxy import mapping_of, unwrapped
from padiff.engine import copied_by_name
from padiff.isolation import side_of
from padiff.parameters import Correspondence


def assign_weight(
    base_model: Any = None,
    raw_model: Any = None,
    layer_map: LayerMap | Mapping[Any, Any] | None = None,
    *,
    layer: Any = None,
    module: Any = None,
) -> bool:
    """Copy the weights of one model to another, through each layer's own layout; return whether all were copied.

    ``assign_weight(base_model, raw_model)`` copies from the first to the second. ``assign_weight(layer, module,
    layer_map)`` copies from the second to the first, as document 002 has it: what is called with a layer map, or with
    the keywords ``layer=`` and ``module=``, is of that form, unless the first model is torch's and the second Paddle's.

    What has no counterpart is printed, and left as it is. Names, kinds, shapes and the order of definition decide;
    `auto_diff` has a run's order too, and verifies what it copied. Raises `MappingError` for a layer map that names
    what is in neither model.
    """
    older = layer is not None or module is not None
    first, second = (layer, module) if older else (base_model, raw_model)
    if (older and (base_model is not None or raw_model is not None)) or first is None or second is None:
        msg = (
            "assign_weight() takes two models.\n"
            "Hint: assign_weight(base_model, raw_model) copies to the second, "
            "assign_weight(layer=..., module=..., layer_map=...) to the first."
        )
        raise TypeError(msg)
    if older or (layer_map is not None and not is_swapped(first, second)):
        first, second = second, first
    reference, candidate = (side_of(unwrapped(model)) for model in (first, second))
    known, missing = copied_by_name(reference, candidate, mapping_of((first, second), layer_map))
    if missing:
        lines = (f"    {finding.what}: {'; '.join(finding.evidence)}" for finding in missing)
        say("Assign weight Failed !!!", *lines)
        return False
    say("Assign weight success !!!", *_doubts(known))
    return True


def _doubts(known: Correspondence) -> Iterator[str]:
    """Yield what was copied and only a run can verify."""
    names = [link.candidate.parameter.path for _, link in known.links if link.open]
    if names:
        yield (
            f"    copied as it lies, where names and shapes leave two layouts: {', '.join(names)} "
            "(auto_diff settles which is right)"
        )
