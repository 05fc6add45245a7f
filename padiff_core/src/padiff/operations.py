"""Hear the operations of a model's own code: functions, operators and tensor methods, as calls like any module's.

An operating model is the model itself, but what listens to it hears these too, as calls of modules of the call whose
code they stand in. A framework's own modules are not looked into. What each adapter does is to call back where one of
its functions is called; whose code that is, how the operation is called in any framework, and that one is not heard
inside of another, is decided here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

from padiff.adapter import Adapter, Hook, Listener, Model, Module
from padiff.delegate import DelegatingAdapter, DelegatingModel
from padiff.layers import CATALOGUE, Rule
from padiff.origin import Origin, origin_of
from padiff.tree import leaves

__all__ = ["Operation", "operating", "short_name"]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_SYNONYMS: Mapping[str, str] = {
    spelling: name
    for name, spellings in {
        "add": "__add__ __radd__ add_n",
        "sub": "__sub__ subtract",
        "rsub": "__rsub__",
        "mul": "__mul__ __rmul__ multiply",
        "div": "__div__ __truediv__ divide true_divide realdiv",
        "rdiv": "__rdiv__ __rtruediv__",
        "floor_divide": "__floordiv__ floordiv floor_div",
        "mod": "__mod__ remainder",
        "pow": "__pow__ power",
        "rpow": "__rpow__",
        "matmul": "__matmul__ mm bmm batch_matmul batchmatmul",
        "neg": "__neg__ negative",
        "abs": "__abs__ absolute",
        "eq": "__eq__ equal",
        "ne": "__ne__ not_equal",
        "lt": "__lt__ less less_than",
        "le": "__le__ less_equal",
        "gt": "__gt__ greater greater_than",
        "ge": "__ge__ greater_equal",
        "logical_and": "__and__ bitwise_and",
        "logical_or": "__or__ bitwise_or",
        "logical_not": "__invert__ bitwise_not",
        "getitem": "__getitem__ select narrow slice strided_slice",
        "reshape": "view flatten unflatten reshape_as view_as ravel",
        "transpose": "permute t swapaxes swapdims moveaxis movedim",
        "unsqueeze": "expand_dims",
        "expand": "broadcast_to expand_as",
        "concat": "cat concatenate",
        "split": "chunk unbind tensor_split unstack",
        "cast": "to astype type float half double bfloat16 type_as int long bool",
        "clip": "clamp clipbyvalue",
        "silu": "swish",
        "hardswish": "hswish",
        "attention": "scaled_dot_product_attention flash_attention",
        "pad": "constant_pad_nd",
        "upsample": "interpolate",
    }.items()
    for spelling in spellings.split()
}
_VIEWS = _words(
    "getitem reshape transpose unsqueeze squeeze expand split cast detach contiguous diagonal identity cpu cuda npu"
)
"""Operations that may hand on the very memory that they are given."""
_NOT_COMPUTED = _words(
    """
    size dim ndim ndimension numel nelement element_size item tolist numpy asnumpy shape stride storage_offset data_ptr
    is_floating_point is_complex is_contiguous get_device backward register_hook retain_grad requires_grad_ set_data
    clear_gradient clear_grad gradient value_ apply is_tensor is_floating is_integer rank __setitem__ __len__ __bool__
    __int__ __float__ __index__ __format__ __repr__ __str__ __hash__ __array__ __contains__ __iter__ __deepcopy__ set_
    """
)
"""What tells something about a tensor, and makes none."""
_IN_PLACE = re.compile(r"[^_]_$|^__i(add|sub|mul|truediv|floordiv|mod|pow|matmul|and|or|xor)__$")


def short_name(name: str) -> str:
    """Return what an operation of that full name is called in any framework: ``mul`` for ``torch.Tensor.__rmul__``."""
    last = name.rpartition(".")[2].lower()
    if _IN_PLACE.search(last):
        last = last.replace("__i", "__") if last.startswith("__i") else last[:-1]
    return _SYNONYMS.get(last, last)


def is_in_place(name: str) -> bool:
    """Return whether a function of that full name changes the tensor that it is given."""
    return _IN_PLACE.search(name.rpartition(".")[2]) is not None


class Operation(Module):
    """Be a function that the code of a module calls; ``native`` is a module of the framework that calls it."""

    operation = True

    def __init__(self, parent: Module, name: str, function: Callable[..., Any], native: Any, *, in_place: bool) -> None:
        short = short_name(name)
        super().__init__(
            f"{parent.path}.{short}" if parent.path else short, native, Rule(short) if short in CATALOGUE else None
        )
        self.memory = "same" if in_place else "view" if short in _VIEWS else "own"
        self._parent = parent
        self._name = name
        self._function = function

    @property
    def class_name(self) -> str:
        """Return the function's full name."""
        return self._name

    @property
    def training(self) -> bool:
        """Return whether the module whose code calls it is in training mode."""
        return self._parent.training

    @property
    def forward(self) -> Callable[..., Any]:
        """Return the function."""
        return self._function

    @property
    def definition(self) -> None:
        """Return None: the line of an operation is where it is called."""
        return


def operating(model: Model) -> Model:
    """Return a model of which its operations are heard too. Raises `NotOffered` where its adapter cannot."""
    return _OperatingModel(model, _OperatingAdapter(model.adapter))


class _OperatingAdapter(DelegatingAdapter):
    """Be an adapter whose models tell of their operations; it knows each of them again."""

    def __init__(self, inner: Adapter) -> None:
        super().__init__(inner)
        self._known: dict[tuple[int, str, int], Operation] = {}
        self._users: dict[Any, bool] = {}

    def wrap(self, model: Any) -> Model:
        return _OperatingModel(self.inner.wrap(model), self)

    def operation(self, parent: Module, name: str, function: Callable[..., Any], *, in_place: bool) -> Operation:
        """Return the operation that a function is in the code of a module: the same one in every run."""
        key = id(parent.native), name, id(function)
        known = self._known.get(key)
        if known is None:
            native = self.inner.as_module(function)
            known = self._known[key] = Operation(parent, name, function, native, in_place=in_place)
        return known

    def is_users(self, module: Module) -> bool:
        """Return whether the code of a module is the user's, and not the framework's."""
        code = getattr(module.forward, "__func__", module.forward)
        known = self._users.get(code)
        if known is None:
            definition = module.definition
            known = definition is not None and origin_of(definition[0], self.inner) is Origin.USER
            self._users[code] = known
        return known


class _OperatingModel(DelegatingModel):
    """Be a model that tells of its operations too."""

    adapter: _OperatingAdapter

    def attach(self, listener: Listener) -> Hook:
        """Report the calls of modules, and of operations in their code."""
        hearer = _Hearer(listener, self.adapter)
        hook = self.inner.attach(hearer)
        try:
            hook.add(self.inner.hear_operations(hearer.hear).close)
        except BaseException:
            hook.close()
            raise
        return hook


class _Hearer(Listener):
    """Pass on the calls of modules, and turn those of functions in a module's own code into calls of operations."""

    def __init__(self, listener: Listener, adapter: _OperatingAdapter) -> None:
        self._listener = listener
        self._adapter = adapter
        self._open: list[Module] = []
        self._busy = False
        self.wants = listener.wants

    def enter(self, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any] | None:
        self._listener.frames = self.frames
        self._open.append(module)
        with self._undisturbed():
            return self._listener.enter(module, args, kwargs)

    def leave(self, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any | None:
        while self._open.pop().native is not module.native:
            pass  # a model that catches an exception leaves calls open that never return
        with self._undisturbed():
            return self._listener.leave(module, args, kwargs, output)

    def hear(self, function: Callable[..., Any], name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a function; as an operation where a module's own code calls it, with a tensor."""
        if self._busy or not self._open or not self._is_heard(name, args, kwargs):
            return function(*args, **kwargs)
        in_place = is_in_place(name) or bool(kwargs.get("inplace"))
        operation = self._adapter.operation(self._open[-1], name, function, in_place=in_place)
        with self._undisturbed():
            args, kwargs = self._listener.enter(operation, args, kwargs) or (args, kwargs)
            output = function(*args, **kwargs)
            given = self._listener.leave(operation, args, kwargs, output)
            return output if given is None else given

    def _is_heard(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        if not self._adapter.is_users(self._open[-1]) or short_name(name) in _NOT_COMPUTED:
            return False
        return next(leaves((args, kwargs), self._adapter.is_tensor), None) is not None

    def _undisturbed(self) -> AbstractContextManager[None]:
        return _Busy(self)


class _Busy:
    """Let nothing be heard within: what padiff does itself, and what an operation does inside."""

    def __init__(self, hearer: _Hearer) -> None:
        self._hearer = hearer

    def __enter__(self) -> None:
        self._before, self._hearer._busy = self._hearer._busy, True

    def __exit__(self, *error: object) -> None:
        self._hearer._busy = self._before
