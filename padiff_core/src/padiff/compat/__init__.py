"""Serve the interface that PaDiff's documents show, on the engine of `padiff.diff`.

Nothing here compares or records: a documented call is brought into the engine's own words, and the engine's report is
told in the documented lines.
"""

from padiff.compat._assign import assign_weight
from padiff.compat._auto_diff import auto_diff
from padiff.compat._check import check_dataloader, check_grads, check_params, check_report, check_weights
from padiff.compat._folders import get_dump_root_path, set_dump_root_path
from padiff.compat._loss import default_loss
from padiff.compat._proxy import ProxyModel, create_model
from padiff.compat._special import add_special_init

__all__ = [
    "ProxyModel",
    "add_special_init",
    "assign_weight",
    "auto_diff",
    "check_dataloader",
    "check_grads",
    "check_params",
    "check_report",
    "check_weights",
    "create_model",
    "default_loss",
    "get_dump_root_path",
    "set_dump_root_path",
]
