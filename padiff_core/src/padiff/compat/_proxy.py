"""Wrap one model as PaDiff's create_model does: run it as ever, and dump what its runs did."""

from __future__ import annotations

import os
from collections.abc import Iterator
from operator import methodcaller
from pathlib import Path
from typing import Any

import numpy as np

from padiff.adapter import Hook, Model, Parameter, Tape
from padiff.alignment import LayerMap
from padiff.compat import _dump
from padiff.compat._folders import claim, put_aside, rank
from padiff.compat._log import say
from padiff.compat._module_lists import ModuleLists, api_check
from padiff.compat._run import Keeper, RunReport
from padiff.errors import InputError, check_one_of
from padiff.plugins import adapter_for, transfers
from padiff.recording import Live, Task, arguments, operating, record
from padiff.trace import temporary_store

Path_ = str | os.PathLike[str]
_gradient = methodcaller("gradient")
_PLACES = ("base", "raw")
_OPAQUE = ("attention", "lstm", "gru", "rnn")


def create_model(model: Any, name: str | None = None, dump_freq: int = 1) -> ProxyModel:
    """Wrap a model of any framework; ``name`` is its folder's, its class's unless given.

    Every ``dump_freq``-th step is recorded, the first one first; with ``PADIFF_API_CHECK=ON`` in the environment the
    operations of the model's own code are recorded too. Raises `UnknownModel` where no adapter knows it.
    """
    if isinstance(model, ProxyModel):
        return model
    return ProxyModel(model, name, dump_freq)


def unwrapped(model: Any) -> Any:
    """Return the model itself, of one that `create_model` wrapped too."""
    return model.model if isinstance(model, ProxyModel) else model


def mapping_of(models: tuple[Any, Any], mapping: Any) -> Any:
    """Return a mapping with what two models' own lists and layer maps say added to it; None where nothing is said.

    Raises `InputError` where one maps more modules than the other.
    """
    proxies = [model for model in models if isinstance(model, ProxyModel)]
    lists = [proxy.listed.layer_map for proxy in proxies]
    ignored = [(proxy, path) for proxy in proxies for path in proxy.listed.unrecorded()]
    if not any(lists) and not ignored:
        return mapping or None
    if len({len(mapped) for mapped in lists} | ({0} if len(lists) < 2 else set())) > 1:
        counts = " and ".join(f"{proxy.name} maps {len(proxy.listed.layer_map)} modules" for proxy in proxies)
        msg = f"{counts}; expected as many of both models.\nHint: set_layer_map() of both, in the same order."
        raise InputError(msg)
    given = mapping if isinstance(mapping, LayerMap) else LayerMap(mapping or {})
    whole = LayerMap(given.map)
    whole.ignored = list(given.ignored)
    whole.ignored_with_children = list(given.ignored_with_children)
    whole.ignored_classes = list(given.ignored_classes)
    modules = [dict(proxy.named_submodels()) for proxy in proxies]
    for ours, theirs in zip(*lists, strict=True) if len(lists) == 2 else ():
        whole.map[modules[0][ours]] = modules[1][theirs]
    for proxy, path in ignored:
        whole.ignore(modules[proxies.index(proxy)][path])
    return whole


class ProxyModel:
    """A model whose runs are recorded and dumped; whatever else is asked of it, the model itself answers."""

    def __init__(self, model: Any, name: str | None = None, dump_freq: int = 1) -> None:
        if not isinstance(dump_freq, int) or dump_freq < 1:
            msg = f"dump_freq is {dump_freq!r}; expected a whole number from 1.\nHint: 1 records every step."
            raise InputError(msg)
        wrapped: Model = adapter_for(model).wrap(model)
        self._wrapped = operating(wrapped) if api_check() else wrapped
        self.listed = ModuleLists(self._wrapped)
        """Which modules are recorded."""
        self._keeper: Keeper | None = None
        self._tape: Tape | None = None
        self._aside = False
        self._in_backward = False
        self.model = model
        self.framework = self._wrapped.adapter.name
        self.name = name or type(model).__name__
        self.dump_freq = dump_freq
        self.step = 0
        self.dump_path = claim(self.name)

    def __repr__(self) -> str:
        """Return the framework and the class."""
        return f"Model({self.fullname})"

    def __getattr__(self, name: str) -> Any:
        """Ask the model itself."""
        if name.startswith("__") or "model" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self.model, name)

    @property
    def class_name(self) -> str:
        """Return the name of the model's class."""
        return type(self.model).__name__

    @property
    def fullname(self) -> str:
        """Return ``framework::class``."""
        return f"{self.framework}::{self.class_name}"

    @property
    def report(self) -> RunReport:
        """Return what was recorded since the last `clear_report`."""
        return RunReport(self._recorder.live, self.listed.recorded(), self._recorder.trace)

    @property
    def _recorder(self) -> Keeper:
        if self._keeper is None:
            self._keeper = Keeper(self._wrapped, self.listed.recorded())
        return self._keeper

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the model, and record what it does where this step is one to dump."""
        if self._in_backward:
            return self.model(*args, **kwargs)
        self._taping.begin()
        try:
            with Hook() if self.step % self.dump_freq else self._wrapped.attach(self._recorder):
                return self.model(*args, **kwargs)
        except BaseException:
            self._taping.close()
            raise

    @property
    def _taping(self) -> Tape:
        if self._tape is None:
            self._tape = self._wrapped.tape()
        return self._tape

    def backward(self, loss: Any) -> Any:
        """Run the backward pass from a loss, and record the gradients; return what the framework's own way returns.

        For MindSpore, where no tensor has a backward pass of its own, that is what an optimizer takes: the gradients of
        ``trainable_params()``, added up since the last `try_dump` or `clear_report`. Raises `InputError` where the loss
        is no tensor that the model's outputs led to.
        """
        self._in_backward = True
        try:
            return self._taping.backward(loss)
        finally:
            self._in_backward = False

    def clear_report(self) -> None:
        """Forget what was recorded."""
        if self._keeper is not None:
            self._keeper.close()
        if self._tape is not None:
            self._tape.close()
        self._keeper = self._tape = None

    # Dumps

    def try_dump(self, *args: Any, **kwargs: Any) -> None:
        """Count a step; dump report and parameters where it is one to dump; forget the report.

        ``try_dump(dir_path)``, ``try_dump(per_step, dir_path)``, or either by name (``dump_path`` too): every
        ``per_step``-th call dumps, without it every ``dump_freq``-th step, the first one first.
        """
        per_step, folder = _dump_arguments(args, kwargs)
        due = self.step % self.dump_freq == 0 if per_step is None else (self.step + 1) % per_step == 0
        if due:
            target = self._folder(folder, f"step_{self.step}")
            self.dump_params(target)
            self.dump_report(target)
        self.clear_report()
        self.step += 1

    def dump_report(self, dir_path: Path_ | None = None) -> None:
        """Write what was recorded, as ``report.json`` with its arrays."""
        _dump.dump_report(self._wrapped, self.name, self.report, self.listed, self._folder(dir_path))

    def dump_params(self, dir_path: Path_ | None = None) -> None:
        """Write the parameters and their gradients, as ``params.json`` with its arrays."""
        self._parameters(dir_path, "params.json", gradient=_gradient)

    def dump_weights(self, dir_path: Path_ | None = None) -> None:
        """Write the parameters, as ``weights.json`` with its arrays."""
        self._parameters(dir_path, "weights.json")

    def dump_grads(self, dir_path: Path_ | None = None) -> None:
        """Write the parameters' gradients, as ``grads.json`` with its arrays."""
        self._parameters(dir_path, "grads.json", weights=False, gradient=_gradient)

    def _parameters(self, dir_path: Path_ | None, file: str, **what: Any) -> None:
        _dump.dump_parameters(self._wrapped, self.name, self.listed, self._folder(dir_path) / file, **what)

    def dump_run(self, inputs: Any, loss: Any, *, backward: bool) -> None:
        """Run the model once on its own, and dump report and parameters below ``auto_diff``; nothing of it changes."""
        folder = self._folder(Path(self.dump_path, "auto_diff"))
        args, kwargs = arguments(inputs)
        with temporary_store() as store:
            live = Live(self._wrapped)
            trace = record(self._wrapped, Task(args, kwargs, loss, backward), store, live=live)
            report = RunReport(live, self.listed.recorded(), trace)
            _dump.dump_report(self._wrapped, self.name, report, self.listed, folder)
            keys = trace.parameter_gradients
            self._parameters(
                folder, "params.json", gradient=lambda p: trace.array(keys[p.path]) if p.path in keys else None
            )

    def _folder(self, given: Path_ | None, *below: str) -> Path:
        """Return the folder to dump to; what an earlier process left in the model's own is put aside first."""
        own = Path(self.dump_path).absolute()
        folder = own.joinpath(*below, f"rank_{rank()}") if given is None else Path(given).absolute()
        if not self._aside and folder.is_relative_to(own):
            self._aside = True
            aside = put_aside(own)
            if aside is not None:
                say(f"`{own}` held an earlier run's dumps; they are now at `{aside}`")
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    # What is recorded

    def update_black_list(self, layers: Any, mode: str = "all") -> None:
        """Leave modules out: ``self``, their ``sublayers``, or ``all``."""
        self._change(lambda listed: listed.put("black", layers, mode))

    def update_white_list(self, layers: Any, mode: str = "self") -> None:
        """Record these modules alone; the black list has no say any more."""
        self._change(lambda listed: listed.put("white", layers, mode))

    def update_black_list_with_class(self, layer_class: Any, mode: str = "self") -> None:
        """Leave the modules of a class out."""
        self.update_black_list(self.listed.of_class(layer_class), mode)

    def update_white_list_with_class(self, layer_class: Any, mode: str = "self") -> None:
        """Record the modules of a class alone."""
        self.update_white_list(self.listed.of_class(layer_class), mode)

    def set_layer_map(self, layers: Any) -> None:
        """Say which modules correspond to those of the other model's list, in this order; below them nothing is."""
        self._change(lambda listed: listed.set_layer_map(layers))

    def auto_layer_map(self, model_place: str) -> bool:
        """Map the modules whose inside is each framework's own: recurrent, attention, and of `add_special_init`.

        The other model's are found in the same order.
        """
        check_one_of("model_place", model_place, _PLACES)
        side = _PLACES.index(model_place)
        specials = [row.item for row in transfers()]
        self.set_layer_map(
            [
                module.native
                for module in self._wrapped.modules().values()
                if module.kind in _OPAQUE
                or any(special.fits(side, self.framework, module.class_name) for special in specials)
            ]
        )
        return True

    def _change(self, change: Any) -> None:
        change(self.listed)
        if self._keeper is not None and not self._keeper.calls:
            self.clear_report()

    # The model's tree, as PaDiff's proxies show it

    def submodels(self) -> Iterator[Any]:
        """Yield every module of the tree, the model itself first."""
        return (module.native for module in self._wrapped.modules().values())

    def named_submodels(self) -> Iterator[tuple[str, Any]]:
        """Yield every module with its path."""
        return ((path, module.native) for path, module in self._wrapped.modules().items())

    def parameters(self, recursively: bool | None = None) -> Any:
        """Return what the model's own method does; with ``recursively``, as PaDiff has it, `ProxyParam`s."""
        if recursively is None:
            return self.model.parameters()
        return (parameter for _, parameter in self.named_parameters(recursively))

    def named_parameters(self, recursively: bool | None = None) -> Any:
        """Return what the model's own method does; with ``recursively`` names and `ProxyParam`s."""
        if recursively is None:
            return self.model.named_parameters()
        found = self._wrapped.parameters().items()
        return ((path, ProxyParam(one)) for path, one in found if not one.buffer and (recursively or "." not in path))

    def get_device(self) -> str:
        """Return where the parameters lie."""
        return self._wrapped.device


class ProxyParam:
    """A parameter, shown alike in every framework."""

    def __init__(self, parameter: Parameter) -> None:
        self._parameter = parameter
        self.param = parameter.native

    def numpy(self) -> Any:
        """Return a copy of the values."""
        return np.array(self._parameter.view())

    def grad(self) -> Any:
        """Return a copy of the gradient, or None."""
        gradient = self._parameter.gradient()
        return None if gradient is None else np.array(gradient)


def _dump_arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[int | None, Path_ | None]:
    """Return per_step and the folder, of any documented spelling."""
    known = {"per_step": "per_step", "dir_path": "dir_path", "dump_path": "dir_path"}
    values = {known[name]: value for name, value in kwargs.items() if name in known}
    unknown = [name for name in kwargs if name not in known]
    for value in args:
        name = "per_step" if isinstance(value, int) else "dir_path"
        if name in values or len(args) > 2:
            unknown.append(repr(value))
        values[name] = value
    if unknown:
        msg = (
            f"try_dump() got {', '.join(unknown)}.\nHint: try_dump(), try_dump(dir_path), try_dump(per_step, dir_path)."
        )
        raise TypeError(msg)
    per_step = values.get("per_step")
    if per_step is not None and (not isinstance(per_step, int) or per_step < 1):
        msg = f"per_step is {per_step!r}; expected a whole number from 1.\nHint: 10 dumps at every tenth call."
        raise InputError(msg)
    return per_step, values.get("dir_path")
