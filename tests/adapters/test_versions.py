"""Hold the rooms of the adapters that know versions to what they say, with stand-ins for other versions.

What torch's alone does stands in `test_torch_versions`.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import mindspore
import numpy as np
import paddle
import pytest
import torch

import padiff
import padiff_mindspore.versions
import padiff_paddle.versions
import padiff_torch.versions
from padiff.adapter import CAPABILITIES, Offers
from padiff.errors import AdapterError
from padiff_mindspore.versions import MINDSPORE, MindSpore
from padiff_paddle.versions import PADDLE, Paddle

from .without import Without

ROOMS = {"torch": padiff_torch.versions, "paddle": padiff_paddle.versions, "mindspore": padiff_mindspore.versions}
FRAMEWORKS = {"torch": torch, "paddle": paddle, "mindspore": mindspore}
SETTINGS = {"paddle": ("kinds.py", "optim.py")}
"""Where a framework keeps the settings of layers and optimizers in private attributes: the files of their tables."""
X = np.random.default_rng(0).standard_normal((3, 4), dtype="float32")


def room_of(framework: str, home: Any) -> Offers:
    """Return what another version offers."""
    room: ModuleType = ROOMS[framework]
    return Offers(framework, home, room.OFFERS, room.NEEDED, room.OLDEST)


def code_of(framework: str) -> Iterator[tuple[Path, ast.AST]]:
    """Yield what stands in an adapter's files, but for the room itself."""
    room = Path(str(ROOMS[framework].__file__))
    for file in room.parent.rglob("*.py"):
        if file != room:
            yield from ((file, node) for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))))


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


@pytest.mark.parametrize("framework", ROOMS)
def test_private_names_are_those_that_the_room_gives_reasons_for(framework: str) -> None:
    """Of a framework's; padiff's own begin with self, and Python's with sys."""
    met = set()
    for file, node in code_of(framework):
        if file.name in SETTINGS.get(framework, ()):
            continue
        if isinstance(node, ast.ImportFrom) and str(node.module).partition(".")[0] == framework:
            met |= {*filter(is_private, [*str(node.module).split("."), *(one.name for one in node.names)])}
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            met |= {node.attr} if ast.unparse(node.value) not in ("self", "cls", "sys") else set()
    room = ROOMS[framework]
    assert met - {part for path in room.NEEDED for part in path.split(".")} == set(room.PRIVATE)
    assert all(room.PRIVATE.values())


@pytest.mark.parametrize("framework", ROOMS)
def test_no_version_is_compared(framework: str) -> None:
    for file, node in code_of(framework):
        if isinstance(node, ast.Attribute) and node.attr == "__version__":
            assert file.name == "adapter.py", "a report names it"


@pytest.mark.parametrize("framework", ROOMS)
def test_what_is_missing_is_told_and_goes_without(framework: str) -> None:
    offers = ROOMS[framework].OFFERS
    nothing = room_of(framework, SimpleNamespace())
    assert len(nothing.missing()) == len(offers)
    assert nothing.lost() <= set(CAPABILITIES)
    assert nothing.notes().get("this version", "") == "; ".join(one.without for one in offers.values() if one.without)
    for name, offer in offers.items():
        private = any(map(is_private, offer.path.split(".")))
        assert bool(offer.reason) is private, f"{name}: a private interface has a reason, and only that"
        lacking = room_of(framework, Without(FRAMEWORKS[framework], offer.path))
        assert offer in lacking.missing()


@pytest.mark.parametrize(("framework", "path"), [(name, path) for name, room in ROOMS.items() for path in room.NEEDED])
def test_a_version_that_cannot_be_worked_with_is_refused_in_a_sentence(framework: str, path: str) -> None:
    other = room_of(framework, Without(FRAMEWORKS[framework], path))
    said = rf"^{framework} [\w.+]+ has no .*{framework}\.{path}, .*\nHint: padiff works with {framework} {other.oldest}"
    with pytest.raises(AdapterError, match=said):
        other.check()


# Paddle -----------------------------------------------------------------------------------------------------


class Scaled(paddle.nn.Layer):
    """A linear layer, called with a keyword argument, as tensors are in Paddle's own layers."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Weighed()

    def forward(self, x: Any) -> Any:
        return self.inner(x, by=x * 0.5)


class Weighed(paddle.nn.Layer):
    """What gets it."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = paddle.nn.Linear(4, 4)

    def forward(self, x: Any, by: Any) -> Any:
        return self.linear(x) * by


def call(self: Any, *inputs: Any, **kwargs: Any) -> Any:
    """Call a layer as Paddle 3.2 does."""
    for hook in self._forward_pre_hooks.values():
        given = hook(self, inputs)
        if given is not None:
            inputs = given if isinstance(given, tuple) else (given,)
    outputs = self.forward(*inputs, **kwargs)
    for hook in self._forward_post_hooks.values():
        given = hook(self, inputs, outputs)
        outputs = outputs if given is None else given
    return outputs


@pytest.fixture
def older(monkeypatch: pytest.MonkeyPatch) -> Paddle:
    """Give the adapter a Paddle whose hooks get no keyword arguments."""
    monkeypatch.setattr(paddle.nn.Layer, "_dygraph_call_func", call)
    found = Paddle(paddle)
    for name in ("register_forward_pre_hook", "register_forward_post_hook"):
        found.held[name] = None
    for room in ("model", "tensor", "state", "adapter"):
        monkeypatch.setattr(f"padiff_paddle.{room}.PADDLE", found)
    return found


@pytest.mark.parametrize("wrong", [False, True])
def test_hooks_without_keyword_arguments_see_them(older: Paddle, wrong: bool) -> None:
    theirs = Scaled()
    if wrong:
        theirs.inner.forward = lambda x, by: theirs.inner.linear(x) * by * 1.01  # type: ignore[method-assign]
    report = padiff.diff(Scaled(), theirs, (X,))
    assert report.aligned is not wrong
    assert [one.candidate.path for one in report.sources] == (["inner"] if wrong else [])
    assert "read from Paddle's own call" in report.environment["paddle"]["this version"]


def test_a_backward_pass_is_found_among_what_runs() -> None:
    met = []
    x = paddle.to_tensor(X, stop_gradient=False)
    x.register_hook(lambda _: met.append(PADDLE.in_backward()))
    (x * 2).sum().backward()
    assert met == [True]
    assert not PADDLE.in_backward()


# MindSpore --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("parameters", "given"), [("a, b, c, d, value", 0), ("a, b, c, d, has_aux, value", 1)])
def test_a_graph_is_run_with_what_the_executor_takes(parameters: str, given: int) -> None:
    got: list[Any] = []
    grad: Any = eval(f"lambda {parameters}: got.append(({parameters}))", {"got": got})
    api = SimpleNamespace(_pynative_executor=SimpleNamespace(grad=grad))
    other = MindSpore(SimpleNamespace(common=SimpleNamespace(api=api), jit=mindspore.jit))
    other.grad(len, "by input", "value")
    assert got == [(len, "by input", None, None, *[False] * given, "value")]


def test_a_compiler_is_known_by_its_file() -> None:
    home = Path(inspect.unwrap(mindspore.jit).__code__.co_filename).parent
    assert MINDSPORE.compiler(str(home / "jit_trace.py")) == "jit_trace.py"
    assert MINDSPORE.compiler(str(home / "tensor.py")) is None
    assert MINDSPORE.compiler("/models/api.py") is None
