"""Stand where scripts written for PaDiff 0.3 look for its interface."""

from padiff.compat import (
    add_special_init,
    assign_weight,
    auto_diff,
    check_dataloader,
    check_grads,
    check_params,
    check_report,
    check_weights,
    create_model,
    get_dump_root_path,
    set_dump_root_path,
)

__all__ = [
    "add_special_init",
    "assign_weight",
    "auto_diff",
    "check_dataloader",
    "check_grads",
    "check_params",
    "check_report",
    "check_weights",
    "create_model",
    "get_dump_root_path",
    "set_dump_root_path",
]
