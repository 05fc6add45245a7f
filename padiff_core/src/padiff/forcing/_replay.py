"""Run one call by itself, on recorded values and in any precision.

The calls below it are fed, so that what is left is the call's own code.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any

import numpy as np

from padiff.adapter import Adapter, Model, Module, Tensor
from padiff.alignment import Pair
from padiff.errors import NotOffered, PadiffError
from padiff.forcing._checks import Observed
from padiff.forcing._forcer import Forcer
from padiff.forcing._messages import Replayed, ReplayRequest, Slotted
from padiff.forcing._own_functions import Disturbing, DisturbingKernels, Typing, Uncasting
from padiff.numerics import Array, epsilon_of, is_float, numpy_dtype
from padiff.paths import joined
from padiff.recording import Live, at_input, fill, natively, plain, wrapped
from padiff.trace import Call, Key

_ALL = (0, 1 << 64)
"""All memory."""


@np.errstate(over="ignore", invalid="ignore")
def replay(live: Live, request: ReplayRequest) -> Replayed:
    """Run a call of the last recorded run by itself as a request says. The module comes back as it was.

    What a type is too narrow for is infinite in it, of what is fed, too.
    """
    call, backward, dtype = request.call, request.backward, request.dtype
    changed = live.changed(call)
    if changed:
        msg = f"its {', '.join(changed)} is another one now than it was at this call"
        raise PadiffError(msg)
    adapter = live.adapter
    model = wrapped(adapter, live.native(call), call)
    observed = Observed()
    given = [v if v is None else at_input(adapter, call, i, v) for i, v in enumerate(request.inputs)]
    natives = [
        None
        if value is None
        else _native(adapter, value, leaf.dtype, request.dtype, place, i in request.differentiable)
        for i, (leaf, value, place) in enumerate(zip(call.inputs, given, live.places(call), strict=True))
    ]
    # A tensor that is given twice (query, key and value) is one tensor here too: its gradient is the sum.
    once: dict[int, int] = {}
    for index, (leaf, value) in enumerate(zip(call.inputs, given, strict=True)):
        first = once.get(leaf.token) if value is None else once.setdefault(leaf.token, index)
        before = None if first is None else given[first]
        if first is not None and (value is None or (before is not None and np.array_equal(value, before))):
            natives[index] = natives[first]

    def differentiate(output: Any) -> list[tuple[Any, Any | None]]:
        starts = []
        for index, native in enumerate(forcer.results):
            tensor = adapter.tensor(native)
            leaf = request.outputs.get(index)
            gradient = None if leaf is None else request.values.gradient(leaf)
            if gradient is not None and tensor.differentiable:
                seed_array = np.asarray(gradient, dtype=numpy_dtype(tensor.dtype))
                starts.append((native, adapter.from_numpy(natively(tensor, seed_array), device=tensor.device)))
        return starts

    with adapter.quiet(), adapter.seeded(request.seed), model.preserved(), ExitStack() as stack:
        for path, wanted in request.settings.items():
            stack.enter_context(_set(model.modules()[path], wanted))
        if request.evaluating:
            model.evaluate()
        for parameter in model.parameters().values() if request.thawed else ():
            if not parameter.buffer:
                parameter.thaw()
        with live.lifted(model, dtype) if dtype else live.ambient(call):
            forcer = _Replaying(
                request,
                {key: below.key for key, below in _numbered(call)},
                adapter,
                _plan(call, {pair.candidate: pair for pair in request.pairs}),
                request.values,
                truth=request.truth,
                observed=observed,
                loose=request.loose,
                # Where they lie now: the lift may have moved them.
                protected=[_ALL] if request.swapping else [one.extent() for one in model.parameters().values()],
                gradients=backward,
                live=live,
                top=call.module,
            )
            types = Typing(forcer, adapter) if request.watching else None
            kernels = DisturbingKernels(forcer, adapter, request.kernels, forcer.hooks) if request.kernels else None
            uncast = Uncasting(forcer, adapter, dtype, request.uncast, kernels) if request.uncast else kernels or types
            functions = Disturbing(forcer, adapter, request.rounding) if request.rounding else uncast
            intercepted = nullcontext() if functions is None else functions.within(model)
            narrowed = adapter.narrowing() if request.narrowing else nullcontext()
            with intercepted, narrowed, model.attach(functions or forcer), forcer.hooks:
                args, kwargs = (fill(given, natives) for given in live.arguments(call))
                model.run(args, kwargs, forcer.begun_by(differentiate) if backward else None)
                if backward:
                    forcer.finish()
            gradients, buffers = _held_by(model, call)
    return Replayed(observed, forcer.checks, gradients, buffers, {} if types is None else types.found, forcer.shown)


def _held_by(model: Model, call: Call) -> tuple[dict[str, Array], dict[str, Array]]:
    """Return the gradients of a call's parameters, and its buffers, by their paths in the whole model."""
    gradients, buffers = {}, {}
    for path, parameter in model.parameters().items():
        full = joined(call.path, path)
        if parameter.buffer:
            buffers[full] = np.array(parameter.view())
        elif (gradient := parameter.gradient()) is not None:
            gradients[full] = np.array(gradient)
    return gradients, buffers


@contextmanager
def _set(module: Module, wanted: Mapping[str, Any]) -> Iterator[None]:
    """Let a module have other hyper-parameters within. Raises `NotOffered` where one is no attribute of it.

    Of the spellings that an attribute may have, the one is taken that the table reads as what is wanted.
    """
    native, rules = module.native, {} if module.rule is None else module.rule.settings
    before: dict[str, Any] = {}
    try:
        for name, value in wanted.items():
            setting = rules.get(name)
            if setting is None or not isinstance(setting.read, str):
                raise NotOffered(name)
            held = before.setdefault(setting.read, getattr(native, setting.read))
            spellings = [value, not held] if isinstance(held, bool) else [value]
            for one in spellings:
                setattr(native, setting.read, one)
                if plain(setting.value(native)) == value:
                    break
            else:
                raise NotOffered(name)
        yield
    finally:
        for attribute, value in before.items():
            setattr(native, attribute, value)


def _native(adapter: Adapter, value: Array, own: str, dtype: str | None, place: Any, differentiable: bool) -> Any:
    """Return a value as the framework's tensor; floating ones in another ``dtype``, or in the call's ``own``.

    Where it lay, and as it did: kernels are chosen by that. With gradients if asked.
    """
    floating = is_float(value)
    if floating and (dtype or epsilon_of(own)):
        value = value.astype(numpy_dtype(dtype or own))
    native = adapter.placed(value, place, differentiable=floating and differentiable)
    # Not the leaf itself: a module may change its input in place, which a leaf forbids.
    return adapter.tensor(native).swapped(value) if floating and differentiable else native


def _plan(top: Call, pairs: Mapping[Call, Pair]) -> dict[Key, Pair]:
    """Return the pairs of a call and of those below it, as a replay will number them."""
    return {key: pairs[call] for key, call in _numbered(top) if call in pairs}


def _numbered(top: Call) -> Iterator[tuple[Key, Call]]:
    """Yield a call and those below it, as a replay of it will number them."""
    seen: dict[str, int] = {}
    for call in top.subtree():
        ordinal = seen.get(call.path, 0)
        seen[call.path] = ordinal + 1
        yield (call.path, ordinal), call


class _Replaying(Forcer):
    """Feed a running model, and see to its calls without counterpart as a request says.

    Some pass on what they got: the bits and the gradient. Of some what they take and give is shown, or exchanged.
    """

    def __init__(self, request: ReplayRequest, keys: Mapping[Key, Key], *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.shown: dict[Slotted, Array] = {}
        self._request = request
        self._keys = keys
        """Key of a call in this run -> its key in the whole model's."""
        self._passed: dict[Call, Any] = {}

    def arrive(self, call: Call, tensors: list[Tensor]) -> dict[int, Any]:
        """Keep a copy of the first input of what is idle: the call itself may change it in place."""
        if tensors and self._keys.get(call.key) in self._request.idle:
            self._passed[call] = tensors[0].swapped(tensors[0].numpy())
        put = self._exchanged(call, "input", tensors)
        return {**put, **super().arrive(call, self._with(put, tensors))}

    def depart(self, call: Call, tensors: list[Tensor]) -> dict[int, Any]:
        """Return it in place of the output."""
        put = self._exchanged(call, "output", tensors)
        changed = super().depart(call, self._with(put, tensors))
        passed = self._passed.pop(call, None)
        return {**put, **(changed if passed is None or not tensors else {0: passed, **changed})}

    def _with(self, put: Mapping[int, Any], tensors: list[Tensor]) -> list[Tensor]:
        return [self.adapter.tensor(put[at]) if at in put else tensor for at, tensor in enumerate(tensors)]

    def _exchanged(self, call: Call, what: str, tensors: list[Tensor]) -> dict[int, Any]:
        key = self._keys.get(call.key)
        if key is None or key not in self._request.shown:
            return {}
        changed = {}
        for index, tensor in enumerate(tensors):
            seen = self.shown[key, what, index] = tensor.numpy()
            value = self._request.put.get((key, what, index))
            # A complex value has no place in a real one: half of it would be lost.
            if value is not None and (np.iscomplexobj(seen) or not np.iscomplexobj(value)):
                value = value.astype(numpy_dtype(tensor.dtype))
                if call.module.memory != "same" or not tensor.overwrite(value):
                    changed[index] = self.adapter.from_numpy(natively(tensor, value), device=tensor.device)
        return changed
