"""Plant random slips of the hand in the source of a model's classes, and tell without padiff what they change."""

from __future__ import annotations

import ast
import copy
import inspect
import random
import types
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

__all__ = ["apart", "mutants", "seen", "state"]

EXCHANGED = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.MatMult: ast.Mult}


def slips(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Yield what a slip of the hand may make of a node."""
    if isinstance(node, ast.BinOp):
        yield "left operand", node.left
        yield "right operand", node.right
        if type(node.op) in EXCHANGED:
            yield "operator", ast.BinOp(node.left, EXCHANGED[type(node.op)](), node.right)
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield "not", ast.Constant(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int):
        yield "one more", ast.Constant(node.value + 1)
        yield "one less", ast.Constant(node.value - 1)
    elif isinstance(node, ast.Constant) and isinstance(node.value, float):
        yield "ten percent more", ast.Constant(node.value * 1.1 or 0.1)
    elif isinstance(node, ast.Call):
        if node.args:
            yield "unwrapped", node.args[0]
        if len(node.args) > 1:
            yield "arguments", ast.Call(node.func, [node.args[1], node.args[0], *node.args[2:]], node.keywords)
        if node.keywords:
            yield "keyword", ast.Call(node.func, node.args, node.keywords[1:])
    elif isinstance(node, ast.Compare):
        yield "not", ast.UnaryOp(ast.Not(), node)
    elif isinstance(node, ast.List | ast.Tuple) and isinstance(node.ctx, ast.Load) and len(node.elts) > 1:
        yield "elements", type(node)([node.elts[1], node.elts[0], *node.elts[2:]], node.ctx)
    elif isinstance(node, ast.Assign) and _names(node.targets[0]) & _names(node.value):
        yield "statement", ast.Pass()


def _names(node: ast.AST) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}


class _Slip(ast.NodeTransformer):
    def __init__(self, at: int, instead: ast.AST) -> None:
        self.left, self.instead = at, instead

    def visit(self, node: ast.AST) -> Any:
        """Count the nodes, and replace one."""
        self.left -= 1
        return copy.deepcopy(self.instead) if self.left == -1 else self.generic_visit(node)


def mutants(module: types.ModuleType, used: set[str], numbers: random.Random) -> Iterator[tuple[str, types.ModuleType]]:
    """Yield modules with one slip each, in the classes ``used``, with a word on it."""
    tree = ast.parse(inspect.getsource(module))
    sites = [
        (start, function, slip)
        for start, function in enumerate(tree.body)
        if isinstance(function, ast.ClassDef) and function.name in used
        for slip in _within(function)
    ]
    numbers.shuffle(sites)
    for start, function, (index, name, line, instead) in sites:
        body = [*tree.body]
        body[start] = _Slip(index, instead).visit(copy.deepcopy(function))
        other = types.ModuleType(module.__name__)
        other.__package__, other.__file__ = module.__package__, module.__file__
        try:
            exec(compile(ast.fix_missing_locations(ast.Module(body, [])), module.__file__ or "", "exec"), vars(other))
        except Exception:  # what does not even compile, or run as a module, is no port
            continue
        yield f"{function.name}:{line} {name}", other


def _within(owner: ast.ClassDef) -> Iterator[tuple[int, str, int, ast.AST]]:
    """Yield the slips in a class: which node of it, in the order of a visit; what, on which line, what instead."""
    numbered: list[ast.AST] = []

    class Numbered(ast.NodeVisitor):
        def visit(self, node: ast.AST) -> None:
            numbered.append(node)
            self.generic_visit(node)

    Numbered().visit(owner)
    for index, node in enumerate(numbered):
        for name, instead in slips(node):
            yield index, name, getattr(node, "lineno", 0), instead


# The judge ---------------------------------------------------------------------------------------------------


def state(model: Any) -> dict[str, np.ndarray]:
    """Return copies of the parameters and buffers of a model of Paddle or MindSpore."""
    if hasattr(model, "parameters_and_names"):
        return {name: value.asnumpy().copy() for name, value in model.parameters_and_names()}
    return {name: value.numpy() for name, value in model.state_dict().items()}


def load(model: Any, values: Mapping[str, np.ndarray]) -> bool:
    """Give a model parameters and buffers; return whether it has just these."""
    if {name: one.shape for name, one in state(model).items()} != {name: one.shape for name, one in values.items()}:
        return False
    if hasattr(model, "parameters_and_names"):
        import mindspore

        for name, one in model.parameters_and_names():
            one.set_data(mindspore.Tensor(values[name]))
    else:
        model.set_state_dict(values)
    return True


def seen(model: Any, values: Mapping[str, np.ndarray], inputs: Any) -> dict[str, np.ndarray] | None:
    """Return the outputs of a port with such weights, the gradients of its parameters, and its buffers then.

    Gradients begin at fixed random ones of the outputs. Nothing is returned of a port with other parameters.
    """
    if not load(model, values):
        return None
    found = (_mindspore if hasattr(model, "parameters_and_names") else _paddle)(model, inputs)
    found |= {
        f"buffer {name}": one for name, one in state(model).items() if name not in found and one.dtype.kind == "f"
    }
    load(model, values)
    return found


def _tensors(value: Any, kind: type) -> Iterator[Any]:
    if isinstance(value, kind) and "float32" in str(value.dtype).lower():
        yield value
    for one in value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ():
        yield from _tensors(one, kind)


def _weighted(outputs: list[Any], tensor: Any) -> Any:
    numbers = np.random.default_rng(1)
    return sum((one * tensor(numbers.normal(size=tuple(one.shape)).astype("float32"))).sum() for one in outputs)


def _paddle(model: Any, inputs: Any) -> dict[str, np.ndarray]:
    import paddle

    outputs = [*_tensors(_called(model, inputs, paddle.to_tensor), paddle.Tensor)]
    _weighted(outputs, paddle.to_tensor).backward()
    found = {f"output {index}": one.numpy() for index, one in enumerate(outputs)}
    for name, parameter in model.named_parameters():
        if not parameter.stop_gradient:
            none = parameter.grad is None
            found[name] = np.zeros(parameter.shape, "float32") if none else parameter.grad.numpy()
    model.clear_gradients()
    return found


def _mindspore(model: Any, inputs: Any) -> dict[str, np.ndarray]:
    import mindspore

    def run() -> tuple[Any, list[Any]]:
        outputs = [*_tensors(_called(model, inputs, mindspore.Tensor), mindspore.Tensor)]
        return _weighted(outputs, mindspore.Tensor), outputs

    trained = [(name, one) for name, one in model.parameters_and_names() if one.requires_grad]
    step = mindspore.value_and_grad(run, None, [one for _, one in trained], has_aux=True)
    (_, outputs), gradients = step()
    found = {f"output {index}": one.asnumpy() for index, one in enumerate(outputs)}
    return found | {name: one.asnumpy() for (name, _), one in zip(trained, gradients, strict=True)}


def _called(model: Any, inputs: Any, tensor: Any) -> Any:
    if isinstance(inputs, dict):
        return model(**{name: tensor(value) for name, value in inputs.items()})
    return model(*map(tensor, inputs))


def apart(right: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray] | None) -> float:
    """Return how far apart two ports are: relative L2 over all outputs, gradients or buffers, the largest one."""
    if other is None or any(name not in other or other[name].shape != right[name].shape for name in right):
        return float("inf")
    errors = []
    for some in ("output", "buffer", ""):
        names = [name for name in right if (name.split(" ")[0] if " " in name else "") == some]
        if names:
            both = (np.concatenate([side[name].ravel() for name in names]).astype(float) for side in (right, other))
            ours, theirs = both
            errors.append(float(np.linalg.norm(ours - theirs) / max(np.linalg.norm(ours), 1e-30)))
    return max(errors)
