"""padiff answers one question: do these two models compute the same thing, and if not, where and why do they differ?

Names are loaded on first use: ``import padiff`` imports no framework, and neither numpy nor attrs. What frameworks call
so too (Module, Parameter, Tensor, ...) and only adapters need is left out of ``from padiff import *``.
"""

from padiff._version import __version__ as __version__

TYPE_CHECKING = False  # read by type checkers as true; typing itself would take longer to import than all of this

if TYPE_CHECKING:
    from typing import Any

    from padiff.adapter import (
        API_VERSION,
        CAPABILITIES,
        Adapter,
        AdapterInfo,
        Metric,
        Reader,
        Renderer,
        SpecialTransfer,
        hookimpl,
    )
    from padiff.adapter import Hook as Hook
    from padiff.adapter import Listener as Listener
    from padiff.adapter import Model as Model
    from padiff.adapter import Module as Module
    from padiff.adapter import Parameter as Parameter
    from padiff.adapter import Tape as Tape
    from padiff.adapter import Tensor as Tensor
    from padiff.alignment import LayerMap
    from padiff.compat import (
        ProxyModel,
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
    from padiff.engine import compare, diff, graph, record, transfer
    from padiff.errors import (
        AdapterError,
        BackwardError,
        ForwardError,
        InputError,
        InternalError,
        InternalWarning,
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
    from padiff.isolation import Remote, remote
    from padiff.kinds import CATALOGUE
    from padiff.kinds import Habit as Habit
    from padiff.kinds import Kind as Kind
    from padiff.kinds import Part as Part
    from padiff.kinds import Rule as Rule
    from padiff.kinds import Setting as Setting
    from padiff.kinds import Unit as Unit
    from padiff.plugins import register_transfer
    from padiff.report import Figures, Finding, Measurement, Note, Phase, Place, Report, Transfer, Verdict

_HOMES = {
    "adapter": "API_VERSION CAPABILITIES Adapter AdapterInfo Hook Listener Metric Model Module Parameter Reader "
    "Renderer SpecialTransfer Tape Tensor hookimpl",
    "plugins": "register_transfer",
    "compat": "ProxyModel add_special_init assign_weight auto_diff check_dataloader check_grads check_params "
    "check_report check_weights create_model get_dump_root_path set_dump_root_path",
    "engine": "compare diff graph record transfer",
    "errors": "AdapterError BackwardError ForwardError InputError InternalError InternalWarning LiftError "
    "MappingError MissingFramework NotOffered PadiffError PluginError PluginWarning UnknownModel UnusableReference "
    "UnwatchableModel WorkerError",
    "isolation": "Remote remote",
    "kinds": "CATALOGUE Habit Kind Part Rule Setting Unit",
    "alignment": "LayerMap",
    "report": "Figures Finding Measurement Note Phase Place Report Transfer Verdict",
}
_HOME = {name: home for home, names in _HOMES.items() for name in names.split()}

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
    "InputError",
    "InternalError",
    "InternalWarning",
    "LayerMap",
    "LiftError",
    "MappingError",
    "Measurement",
    "Metric",
    "MissingFramework",
    "NotOffered",
    "Note",
    "PadiffError",
    "Phase",
    "Place",
    "PluginError",
    "PluginWarning",
    "ProxyModel",
    "Reader",
    "Remote",
    "Renderer",
    "Report",
    "SpecialTransfer",
    "Transfer",
    "UnknownModel",
    "UnusableReference",
    "UnwatchableModel",
    "Verdict",
    "WorkerError",
    "add_special_init",
    "assign_weight",
    "auto_diff",
    "check_dataloader",
    "check_grads",
    "check_params",
    "check_report",
    "check_weights",
    "compare",
    "create_model",
    "diff",
    "get_dump_root_path",
    "graph",
    "hookimpl",
    "record",
    "register_transfer",
    "remote",
    "set_dump_root_path",
    "transfer",
]


def __getattr__(name: str) -> "Any":
    """Load a public name from its home on first use."""
    home = _HOME.get(name)
    if home is None:
        msg = f"module 'padiff' has no attribute {name!r}"
        raise AttributeError(msg)
    from importlib import import_module

    from padiff.garbage import collecting_later

    try:
        with collecting_later():  # looking for some took a sixth of the time
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
    return sorted({*globals(), *_HOME})
