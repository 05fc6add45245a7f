"""Answer one question: do these two models compute the same thing, and if not, where and why do they part?

Names are loaded on first use: ``import padiff`` imports no framework, and neither numpy nor attrs.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from padiff.adapter import (
        API_VERSION,
        CAPABILITIES,
        Adapter,
        AdapterInfo,
        Hook,
        Listener,
        Model,
        Module,
        Parameter,
        Tensor,
    )
    from padiff.contributions import Metric, Renderer, SpecialTransfer
    from padiff.engine import diff
    from padiff.errors import (
        AdapterError,
        BackwardError,
        ForwardError,
        InputError,
        LiftError,
        MappingError,
        MissingFramework,
        NotOffered,
        PadiffError,
        PluginError,
        PluginWarning,
        UnknownModel,
        UnusableReference,
        UnwatchableModel,
        WorkerError,
    )
    from padiff.hookspecs import hookimpl
    from padiff.isolation import Remote, remote
    from padiff.layers import CATALOGUE, Kind, Part, Rule, Setting, Unit
    from padiff.mapping import LayerMap
    from padiff.report import Figures, Finding, Note, Phase, Place, Report, Transfer, Verdict

_HOMES = {
    "adapter": "API_VERSION CAPABILITIES Adapter AdapterInfo Hook Listener Model Module Parameter Tensor",
    "contributions": "Metric Renderer SpecialTransfer",
    "documented": "assign_weight auto_diff",
    "engine": "diff",
    "errors": "AdapterError BackwardError ForwardError InputError LiftError MappingError MissingFramework NotOffered "
    "PadiffError PluginError PluginWarning UnknownModel UnusableReference UnwatchableModel WorkerError",
    "hookspecs": "hookimpl",
    "isolation": "Remote remote",
    "layers": "CATALOGUE Kind Part Rule Setting Unit",
    "mapping": "LayerMap",
    "report": "Figures Finding Note Phase Place Report Transfer Verdict",
}
_HOME = {name: home for home, names in _HOMES.items() for name in names.split()}

__version__ = "0.4.0"

__all__ = [
    "API_VERSION",
    "CAPABILITIES",
    "CATALOGUE",
    "Adapter",
    "AdapterError",
    "AdapterInfo",
    "BackwardError",
    "Figures",
    "Finding",
    "ForwardError",
    "Hook",
    "InputError",
    "Kind",
    "LayerMap",
    "LiftError",
    "Listener",
    "MappingError",
    "Metric",
    "MissingFramework",
    "Model",
    "Module",
    "NotOffered",
    "Note",
    "PadiffError",
    "Parameter",
    "Part",
    "Phase",
    "Place",
    "PluginError",
    "PluginWarning",
    "Remote",
    "Renderer",
    "Report",
    "Rule",
    "Setting",
    "SpecialTransfer",
    "Tensor",
    "Transfer",
    "Unit",
    "UnknownModel",
    "UnusableReference",
    "UnwatchableModel",
    "Verdict",
    "WorkerError",
    "assign_weight",
    "auto_diff",
    "diff",
    "hookimpl",
    "remote",
]


def __getattr__(name: str) -> Any:
    """Load a public name from its home on first use."""
    home = _HOME.get(name)
    if home is None:
        msg = f"module 'padiff' has no attribute {name!r}"
        raise AttributeError(msg)
    try:
        value = getattr(import_module(f"padiff.{home}"), name)
    except ImportError as error:
        from padiff.predecessor import message

        said = message()
        if said is None:
            raise
        raise ImportError(said) from error
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names."""
    return sorted({*globals(), *__all__})
