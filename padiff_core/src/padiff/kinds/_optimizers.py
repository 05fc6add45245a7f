"""Name the rules by which frameworks' optimizers of one family compute otherwise, whatever their users set."""

from __future__ import annotations

EPS_PLACE = "eps_place"
"""Where an epsilon is added: under a root or to it, before a moment's bias is corrected or behind."""
OPTIMIZER_RULES = (EPS_PLACE, "bias_correction")
"""What optimizers' settings tell besides hyper-parameters. The second is whether moments are corrected at all."""


_FAMILIES = {
    "adadelta",
    "adafactor",
    "adagrad",
    "adam",
    "adamax",
    "adamw",
    "asgd",
    "ftrl",
    "lamb",
    "lars",
    "lbfgs",
    "nadam",
    "radam",
    "rmsprop",
    "rprop",
    "sgd",
}
"""Names of classes that say by what formula an optimizer steps; any other is a user's own, or a training stack's."""


def is_optimizer_rule(name: str) -> bool:
    """Return whether a setting of an optimizer, or of one of its groups, is a rule of its framework's."""
    return name.rpartition(".")[2] in OPTIMIZER_RULES


def is_optimizer_family(name: object) -> bool:
    """Return whether the name of an optimizer's class says by what formula it steps."""
    return isinstance(name, str) and name in _FAMILIES
