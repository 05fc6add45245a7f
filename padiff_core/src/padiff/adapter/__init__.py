"""Define what an adapter implements, and what adapters are built from: the one door for their authors."""

from padiff.adapter._adapter import (
    API_VERSION,
    CAPABILITIES,
    Adapter,
    AdapterInfo,
    Hear,
    Hook,
    Listener,
    Model,
    Module,
    Parameter,
    Tape,
    Tensor,
)
from padiff.adapter._memory import Extent, extent_of, shares_elements

__all__ = [
    "API_VERSION",
    "CAPABILITIES",
    "Adapter",
    "AdapterInfo",
    "Extent",
    "Hear",
    "Hook",
    "Listener",
    "Model",
    "Module",
    "Parameter",
    "Tape",
    "Tensor",
    "extent_of",
    "shares_elements",
]
