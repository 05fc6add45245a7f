"""Compare Hugging Face's models with PaddleNLP's ports of them, as their authors wrote both; and plant random slips.

``python benchmarks/libraries.py`` (``--families Bert T5``): each family in a small configuration that both libraries
are given, with random weights and no dropout, in training. A line a model: what padiff says in its first line.

``--mutants 25 --seed 1``: in each port that is aligned, as many random slips of the hand, one at a time, anywhere in
the source of the classes that it is made of (an operator, a number, an argument, a statement left out). The judge is
not padiff: the port itself, with and without the slip, on the same weights. A slip counts as wrong where outputs or
gradients are more than 1e-5 apart, and as none where these are less than 1e-6.
"""

from __future__ import annotations

import argparse
import ast
import copy
import inspect
import random
import sys
import types
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from machine import machine

HEADS = {
    "Albert": "Model",
    "Bert": "ForMaskedLM",
    "Bloom": "ForCausalLM",
    "CTRL": "LMHeadModel",
    "DebertaV2": "Model",
    "DistilBert": "Model",
    "Electra": "ForMaskedLM",
    "Ernie": "Model",
    "Funnel": "Model",
    "LayoutLM": "Model",
    "Llama": "ForCausalLM",
    "Luke": "Model",
    "MBart": "Model",
    "MPNet": "Model",
    "MT5": "ForConditionalGeneration",
    "MegatronBert": "Model",
    "MobileBert": "Model",
    "Nystromformer": "Model",
    "OPT": "Model",
    "Roberta": "ForMaskedLM",
    "RoFormer": "ForMaskedLM",
    "T5": "ForConditionalGeneration",
    "XLM": "Model",
    "XLNet": "Model",
}
"""Family -> which of its models."""
WORDS = 60
SIZES = {
    WORDS: "vocab_size",
    32: "hidden_size d_model emb_dim dim n_embd word_embed_proj_dim entity_emb_size",
    2: "num_hidden_layers n_layer n_layers num_layers encoder_layers decoder_layers num_decoder_layers type_vocab_size "
    "num_key_value_heads",
    4: "num_attention_heads n_head n_heads num_heads encoder_attention_heads decoder_attention_heads",
    64: "intermediate_size d_ff hidden_dim ffn_dim encoder_ffn_dim decoder_ffn_dim d_inner dff max_position_embeddings "
    "n_positions",
    8: "d_kv head_dim d_head",
    16: "embedding_size",
}
"""Size -> the settings that get it, where a family has them."""
EXCHANGED = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.MatMult: ast.Mult}
WRONG, NONE = 1e-5, 1e-6


def small(config: Any, given: Mapping[str, Any]) -> Any:
    """Return a configuration with small sizes and no dropout, and what is ``given`` where the family has it."""
    names = (*inspect.signature(config.__init__).parameters, *getattr(config, "attribute_map", {}))
    known = {**dict.fromkeys(names), **config().to_dict()}
    settings = {name: size for size, names in SIZES.items() for name in names.split() if name in known}
    for name, value in known.items():
        if "drop" in name and (value is None or isinstance(value, float)):
            settings[name] = 0.0
        if name.endswith("token_id") and isinstance(value, int) and value >= WORDS:
            settings[name] = 1
    settings |= {name: value for name, value in given.items() if name in known}
    return config(**settings)


def pair(family: str) -> tuple[Any, type, Any, dict[str, Any]]:
    """Return Hugging Face's model, PaddleNLP's class and configuration, and inputs for both."""
    import torch
    import transformers
    from paddlenlp import transformers as ports

    head = family + HEADS[family]
    config = small(getattr(transformers, f"{family}Config"), {})
    config._attn_implementation = "eager"
    torch.manual_seed(0)
    reference = getattr(transformers, head)(config).train()
    ids = np.random.default_rng(0).integers(5, WORDS, (2, 12))
    inputs = {"input_ids": ids}
    if config.is_encoder_decoder:
        inputs["decoder_input_ids"] = ids[:, :7]
    port = getattr(ports, head)
    return reference, port, small(getattr(ports, f"{family}Config"), config.to_dict()), inputs


def built(port: type, config: Any) -> Any:
    """Return a port in training."""
    model = port(config)
    model.train()
    return model


# Random slips ------------------------------------------------------------------------------------------------


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


def mutants(port: type, model: Any, numbers: random.Random) -> Iterator[tuple[str, type]]:
    """Yield ports with one slip each, in the classes that a model is made of, with a word on it."""
    module = sys.modules[port.__module__]
    tree = ast.parse(inspect.getsource(module))
    used = {type(one).__name__ for one in model.sublayers(include_self=True) if type(one).__module__ == port.__module__}
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
        yield f"{function.name}:{line} {name}", getattr(other, port.__name__)


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


def seen(model: Any, inputs: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Return the outputs of a port and the gradients of its parameters, from fixed random ones of the outputs."""
    import paddle

    def tensors(value: Any) -> Iterator[Any]:
        if isinstance(value, paddle.Tensor):
            yield value
        for one in value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ():
            yield from tensors(one)

    numbers = np.random.default_rng(1)
    given = {name: paddle.to_tensor(value) for name, value in inputs.items()}
    outputs = [one for one in tensors(model(**given)) if one.dtype == paddle.float32]
    sum((one * paddle.to_tensor(numbers.normal(size=one.shape).astype("float32"))).sum() for one in outputs).backward()
    found = {f"output {index}": one.numpy() for index, one in enumerate(outputs)}
    for name, parameter in model.named_parameters():
        found[name] = np.zeros(parameter.shape, "float32") if parameter.grad is None else parameter.grad.numpy()
    model.clear_gradients()
    return found


def apart(right: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray]) -> float:
    """Return how far apart two ports are: relative L2 over all outputs, or over all gradients, the larger one."""
    if any(name not in other or other[name].shape != right[name].shape for name in right):
        return float("inf")
    errors = []
    for some in ("output", ""):
        names = [name for name in right if name.startswith("output ") is bool(some)]
        ours, theirs = (np.concatenate([side[name].ravel() for name in names]).astype(float) for side in (right, other))
        errors.append(float(np.linalg.norm(ours - theirs) / max(np.linalg.norm(ours), 1e-30)))
    return max(errors)


def slip(family: str, count: int, seed: int) -> Counter[str]:
    """Plant slips in one port; print those that padiff misjudges, and return how many were judged how."""
    import padiff

    reference, port, config, inputs = pair(family)
    right = built(port, config)
    padiff.transfer(reference, right)
    state = {name: value.numpy() for name, value in right.state_dict().items()}
    truth, found = seen(right, inputs), Counter[str]()
    for where, mutant in mutants(port, right, random.Random(seed)):
        if sum(found.values()) >= count:
            break
        try:
            model = built(mutant, config)
            if {name: list(one.shape) for name, one in model.state_dict().items()} != {
                name: list(one.shape) for name, one in state.items()
            }:
                continue
            model.set_state_dict(state)
            error = apart(truth, seen(model, inputs))
        except Exception:  # it does not run: everybody sees that
            continue
        aligned = padiff.diff(reference, model, inputs).aligned
        how = "wrong" if error > WRONG else "right" if error < NONE else "between"
        found[f"{how}, called {'aligned' if aligned else 'not aligned'}"] += 1
        if (how, aligned) in (("wrong", True), ("right", False)):
            print(f"{family}{HEADS[family]} {where}: {error:.2g} apart, called {'' if aligned else 'not '}aligned")
    return found


def main() -> None:
    """Print a line for each family, or a table of slips."""
    import torch  # noqa: F401  before the libraries on it

    import padiff

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--families", nargs="+", choices=HEADS, default=[*HEADS])
    parser.add_argument("--mutants", type=int, default=0, help="random slips in each port that is aligned")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    warnings.filterwarnings("ignore")
    print(machine("torch", "transformers", "paddlepaddle", "paddlenlp"))
    total = Counter[str]()
    for family in asked.families:
        reference, port, config, inputs = pair(family)
        report = padiff.diff(reference, built(port, config), inputs)
        print(f"{family}{HEADS[family]}: {str(report).splitlines()[0]}", flush=True)
        if asked.mutants and report.aligned:
            total += slip(family, asked.mutants, asked.seed)
    for how, count in sorted(total.items()):
        print(f"{count:5d} {how}")


if __name__ == "__main__":
    main()
