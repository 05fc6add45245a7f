"""Say how the parameters of recurrent layers become those of Flax's cells, and back.

Others keep two biases for every gate, which are summed; a cell of Flax has one. No table can say that, a function can.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from padiff.adapter import SpecialTransfer

Arrays = Mapping[str, Any]
Function = Callable[[Arrays], dict[str, Any]]

_LAYER = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")


def _one_layer(arrays: Arrays) -> list[Any]:
    """Return the arrays of the only layer and direction; raises ``ValueError`` where there are more."""
    more = sorted(name for name in arrays if name.startswith("weight_ih_l") and name != "weight_ih_l0")
    if more:
        msg = f"a cell is one layer in one direction, and there is {more[0]!r}"
        raise ValueError(msg)
    return [arrays.get(name) for name in _LAYER]


def _sum(first: Any, second: Any) -> Any:
    return second if first is None else first if second is None else first + second


def _without_none(**arrays: Any) -> dict[str, Any]:
    """Return arrays by dotted names, without those that are None."""
    return {name.replace("__", "."): array for name, array in arrays.items() if array is not None}


def _packed(bias: str, join: Callable[[Any, Any], Any]) -> Function:
    """Return what fills a cell that keeps its gates together; ``bias`` names the one it has."""

    def fill(arrays: Arrays) -> dict[str, Any]:
        inward, hidden, *biases = _one_layer(arrays)
        return _without_none(dense_i__kernel=inward.T, dense_h__kernel=hidden.T, **{bias: join(*biases)})

    return fill


def _second(first: Any, second: Any) -> Any:
    """Return the gradient of a sum's term: that of the sum, and so of either."""
    return first if second is None else second


def _first(first: Any, second: Any) -> Any:
    return second if first is None else first


def _gates(join: Callable[[Any, Any], Any]) -> Function:
    """Return what fills the cell that keeps its four gates apart."""

    def fill(arrays: Arrays) -> dict[str, Any]:
        inward, hidden, *biases = _one_layer(arrays)
        bias, size = join(*biases), hidden.shape[1]
        found: dict[str, Any] = {}
        for index, gate in enumerate("ifgo"):
            rows = slice(index * size, (index + 1) * size)
            name = "if_" if gate == "f" else f"i{gate}"
            found |= {f"{name}.kernel": inward[rows].T, f"h{gate}.kernel": hidden[rows].T}
            if bias is not None:
                found[f"h{gate}.bias"] = bias[rows]
        return found

    return fill


def _without_new(first: Any, second: Any) -> Any:
    """Return the sum of a GRU's biases; raises ``ValueError`` where the reset gate works on one of them."""
    size = 0 if second is None else len(second) // 3
    if size and second[2 * size :].any():
        msg = "its bias_hh has a part that the reset gate works on (b_hn); nnx.GRUCell has none"
        raise ValueError(msg)
    return _sum(first, second)


def _unpacked(own: str, other: str, fill: Callable[[Any], Any]) -> Function:
    """Return what fills a layer from a cell; ``fill`` makes the other bias of the one."""

    def layer(arrays: Arrays) -> dict[str, Any]:
        bias = next((arrays[name] for name in ("dense_h.bias", "dense_i.bias") if name in arrays), None)
        found = {"weight_ih_l0": arrays["dense_i.kernel"].T, "weight_hh_l0": arrays["dense_h.kernel"].T}
        return found if bias is None else {**found, own: bias, **_without_none(**{other: fill(bias)})}

    return layer


def _joined(fill: Callable[[Any], Any]) -> Function:
    """Return what fills a layer from the cell that keeps its four gates apart."""

    def layer(arrays: Arrays) -> dict[str, Any]:
        inward = [arrays[f"{'if_' if gate == 'f' else f'i{gate}'}.kernel"].T for gate in "ifgo"]
        hidden = [arrays[f"h{gate}.kernel"].T for gate in "ifgo"]
        found = {"weight_ih_l0": _rows(inward), "weight_hh_l0": _rows(hidden)}
        bias = _rows([arrays[f"h{gate}.bias"] for gate in "ifgo"])
        return {**found, "bias_hh_l0": bias, "bias_ih_l0": fill(bias)}

    return layer


def _rows(arrays: list[Any]) -> Any:
    import numpy as np

    return np.concatenate(arrays)


def _zeros(bias: Any) -> Any:
    return bias * 0


def _itself(bias: Any) -> Any:
    return bias


def _unknown(bias: Any) -> None:
    """Leave the gradient of a GRU's other bias out: the reset gate works on a part of it."""


_DIRECTIONS = {"": "forward_rnn.cell.", "_reverse": "backward_rnn.cell."}
"""Ending of the names of a layer's arrays -> where nnx.Bidirectional has the cell of that direction."""


def _two(fill: Function) -> Function:
    """Return what fills the cells of nnx.Bidirectional, given what fills one."""

    def both(arrays: Arrays) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for ending, top in _DIRECTIONS.items():
            layer = {name.removesuffix(ending): array for name, array in arrays.items() if name.endswith(f"l0{ending}")}
            if not layer:
                msg = "nnx.Bidirectional has two directions, and there is one"
                raise ValueError(msg)
            found |= {top + name: array for name, array in fill(layer).items()}
        return found

    return both


def _two_back(fill: Function) -> Function:
    """Return what fills a layer of both directions from nnx.Bidirectional, given what fills one direction."""

    def both(arrays: Arrays) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for ending, top in _DIRECTIONS.items():
            cell = {name.removeprefix(top): array for name, array in arrays.items() if name.startswith(top)}
            found |= {name + ending: array for name, array in fill(cell).items()}
        return found

    return both


def _both_ways(
    layer: str, cell: str, there: tuple[Function, Function], back: tuple[Function, Function]
) -> tuple[SpecialTransfer, SpecialTransfer]:
    """Return the transfers from a layer to a cell and back, each for values and for gradients."""
    summed = f"Sum the two biases of a {layer} into the one of {cell}."
    split = f"Give a {layer} the one bias of {cell}, and zeros for the other."
    return (
        SpecialTransfer(layer, cell, there[0], gradients=there[1], frameworks=(None, "flax"), doc=summed),
        SpecialTransfer(cell, layer, back[0], gradients=back[1], frameworks=("flax", None), doc=split),
    )


_HIDDEN, _INWARD = ("bias_hh_l0", "bias_ih_l0"), ("bias_ih_l0", "bias_hh_l0")

_CELLS = {
    ("LSTM", "OptimizedLSTMCell"): (
        (_packed("dense_h__bias", _sum), _packed("dense_h__bias", _second)),
        (_unpacked(*_HIDDEN, _zeros), _unpacked(*_HIDDEN, _itself)),
    ),
    ("LSTM", "LSTMCell"): ((_gates(_sum), _gates(_second)), (_joined(_zeros), _joined(_itself))),
    ("GRU", "GRUCell"): (
        (_packed("dense_i__bias", _without_new), _packed("dense_i__bias", _first)),
        (_unpacked(*_INWARD, _zeros), _unpacked(*_INWARD, _unknown)),
    ),
    ("RNN", "SimpleCell"): (
        (_packed("dense_i__bias", _sum), _packed("dense_i__bias", _first)),
        (_unpacked(*_INWARD, _zeros), _unpacked(*_INWARD, _itself)),
    ),
}

TRANSFERS = (
    *(
        transfer
        for layer, cell in (("LSTM", "OptimizedLSTMCell"), ("GRU", "GRUCell"))
        for there, back in [_CELLS[layer, cell]]
        for transfer in _both_ways(
            layer,
            "Bidirectional",
            (_two(there[0]), _two(there[1])),
            (_two_back(back[0]), _two_back(back[1])),
        )
    ),
    *(transfer for (layer, cell), ways in _CELLS.items() for transfer in _both_ways(layer, cell, *ways)),
)
"""What no table can say of recurrent layers."""
