"""Read a recorded trace with the axes of some tensors in the order that they have in the other model."""

from __future__ import annotations

import attrs

from padiff.kinds import ORDER_SETTINGS
from padiff.recording._order import Cuts, Order, Orders
from padiff.trace import OF_PARAMETERS, Call, Cut, Leaf, ReadStore, Samples, Trace, cut_records


def reread(trace: Trace, orders: Orders, cuts: Cuts | None = None) -> Trace:
    """Return a trace as it would have been recorded with some tensors read in other orders: see `permuted_model`.

    Of the parameters of ``cuts`` some rows are read.
    """
    return _Reader(trace, orders).read(cuts or {})


class _Reader:
    """What reads one trace anew."""

    def __init__(self, trace: Trace, orders: Orders) -> None:
        self._trace, self._orders = trace, orders
        self._store = ReadStore(trace.store)
        self._tokens: dict[tuple[int, Order], int] = {}
        self._next = max((leaf.token for call in trace.calls for leaf in (*call.inputs, *call.outputs)), default=0)
        self._new = attrs.evolve(
            trace,
            store=self._store,
            calls=[],
            values=dict(trace.values),
            gradients=dict(trace.gradients),
            summaries=dict(trace.summaries),
        )

    def read(self, cuts: Cuts) -> Trace:
        found: dict[Call, Call] = {}
        permuted = {path for (path, *_), order in self._orders.items() if order.reorders}
        for call in self._trace.calls:
            settings = call.settings
            if call.path in permuted:
                settings = {name: one for name, one in settings.items() if name not in ORDER_SETTINGS}
            parent = None if call.parent is None else found[call.parent]
            inputs = [self._leaf(call, "input", index, leaf) for index, leaf in enumerate(call.inputs)]
            outputs = [self._leaf(call, "output", index, leaf) for index, leaf in enumerate(call.outputs)]
            new = attrs.evolve(call, parent=parent, inputs=inputs, outputs=outputs, children=[], settings=settings)
            found[call] = self._new.add(new)
        self._new.outputs = [
            array if order is None else order.read(array)
            for index, array in enumerate(self._trace.outputs)
            for order in [self._orders.get((*self._trace.root.key, "output", index))]
        ]
        for name in OF_PARAMETERS if cuts else ():
            keys: dict[str, int] = getattr(self._trace, name)
            setattr(self._new, name, {p: self._key(key, cuts[p]) if p in cuts else key for p, key in keys.items()})
        self._new.parameters = cut_records(self._trace.parameters, cuts)
        self._new.samples = Samples(self._new)
        return self._new

    def _leaf(self, call: Call, what: str, index: int, leaf: Leaf) -> Leaf:
        order = self._orders.get((*call.key, what, index))
        if order is None:
            return leaf
        token = self._tokens.get((leaf.token, order))
        if token is None:
            self._next += 1
            token = self._tokens[leaf.token, order] = self._next
            for named in (self._new.values, self._new.gradients):
                if leaf.token in named:
                    named[token] = self._key(named[leaf.token], order)
        return Leaf(leaf.path, leaf.dtype, order.shape(leaf.shape), token, leaf.differentiable)

    def _key(self, key: int, order: Order | Cut) -> int:
        if key >= 0:
            return self._store.add(key, order)
        summary = self._new.summaries[key]
        return self._new.summarized(attrs.evolve(summary, shape=order.shape(summary.shape), sample=None, sketch=None))
