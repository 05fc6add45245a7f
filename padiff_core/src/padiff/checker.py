"""Stand where scripts written for PaDiff 0.3 look for its offline checks."""

from padiff.compat import check_grads, check_params, check_report, check_weights

__all__ = ["check_grads", "check_params", "check_report", "check_weights"]
