"""Find what plugins contribute: adapters, and the one that knows a given model; metrics, transfers, renderers, readers.

One broken plugin must not take the others down: pluggy's own loader stops at the first that fails, so the entry points
are loaded one by one, and each of their hooks is called by itself, under guard. No framework is imported before a model
or a caller asks for it.
"""

from padiff.adapter import Metric, Reader, Renderer, SpecialTransfer, hookimpl
from padiff.plugins._detect import adapter_for, adapter_of_tensor
from padiff.plugins._framework import FRAMEWORKS, principal
from padiff.plugins._hooks import HOOKS, failure
from padiff.plugins._installed import Contributed, Installed, State, contributed, installed
from padiff.plugins._load import load
from padiff.plugins._lookup import contributions, find, readers, rendered, renderer, renderer_for
from padiff.plugins._registry import Row, adapters, loaded, reset, set_environment
from padiff.plugins._user_transfers import register_transfer, transfers
