"""Find the adapters that are installed, and the one that knows a given model.

One broken plugin must not take the others down: pluggy's own loader stops at the first that fails, so the
entry points are loaded one by one, each under guard. No framework is imported before a model or a caller
asks for it.
"""

from padiff.plugins._detect import adapter_for, adapter_of_tensor
from padiff.plugins._installed import Installed, State, installed
from padiff.plugins._load import load
from padiff.plugins._registry import GROUP, adapters, loaded, reset

__all__ = [
    "GROUP",
    "Installed",
    "State",
    "adapter_for",
    "adapter_of_tensor",
    "adapters",
    "installed",
    "load",
    "loaded",
    "reset",
]
