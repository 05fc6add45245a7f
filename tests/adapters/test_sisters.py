"""Hold the adapters to one door of the core, and to the same files with the same functions."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from padiff import adapter
from padiff.adapter import DelegatingAdapter, DelegatingModel

ROOT = Path(__file__).parents[2]
HOMES = {
    "torch": ROOT / "padiff_torch/src/padiff_torch",
    "paddle": ROOT / "padiff_paddle/src/padiff_paddle",
    "mindspore": ROOT / "padiff_mindspore/src/padiff_mindspore",
    "flax": ROOT / "examples/padiff_flax/src/padiff_flax",
}
SISTERS = {"__init__.py", "adapter.py", "kinds.py", "model.py", "optim.py", "plugin.py", "state.py", "tensor.py"}
OURS = ("torch", "paddle", "mindspore")
FILES = [file for name in OURS for file in sorted(HOMES[name].glob("*.py"))]
TENSOR = {"array_of", "device_name", "dtype_name", "from_array", "native_dtype"}
"""What every adapter has in tensor.py; all but from_array take a native tensor or a name, and that alone."""


def functions(name: str, file: str) -> dict[str, list[str]]:
    """Return the public functions of an adapter's file, with the names of what they must be given."""
    found = {}
    for node in ast.parse((HOMES[name] / file).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            given = [one.arg for one in node.args.args]
            optional = len(node.args.defaults)
            found[node.name] = given[: len(given) - optional]
    return found


def assigned(name: str, file: str) -> set[str]:
    """Return the names that an adapter's file gives to what the core made for it."""
    body = ast.parse((HOMES[name] / file).read_text(encoding="utf-8")).body
    targets = (target for node in body if isinstance(node, ast.Assign) for target in node.targets)
    return {one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)}


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}/{file.name}")
def test_an_adapter_imports_nothing_but_the_door(file: Path) -> None:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] == "padiff":
            assert node.module == "padiff.adapter"
            assert {alias.name for alias in node.names} <= set(adapter.__all__)
        if isinstance(node, ast.Import):
            assert not [alias.name for alias in node.names if alias.name.split(".")[0] == "padiff"]


@pytest.mark.parametrize("name", HOMES)
def test_sister_files_have_the_same_names(name: str) -> None:
    assert {file.name for file in HOMES[name].glob("*.py")} >= SISTERS | ({"operations.py"} if name in OURS else set())


@pytest.mark.parametrize("name", OURS)
@pytest.mark.parametrize("file", ["operations.py", "optim.py"])
def test_sister_files_have_the_same_functions(name: str, file: str) -> None:
    assert functions(name, file) == functions("torch", file)


@pytest.mark.parametrize("name", OURS)
def test_what_puts_a_model_back_is_called_alike(name: str) -> None:
    assert functions(name, "state.py").items() >= functions("torch", "state.py").items()


def test_a_function_of_one_name_is_given_the_same_in_every_adapter() -> None:
    known: dict[tuple[str, str], list[str]] = {}
    for name in HOMES:
        for file in ("optim.py", "plugin.py", "tensor.py", "operations.py"):
            if (HOMES[name] / file).exists():
                for function, given in functions(name, file).items():
                    if function != "device_name":  # MindSpore asks for none: it computes in one place
                        assert known.setdefault((file, function), given) == given, (name, file, function)


@pytest.mark.parametrize("name", HOMES)
def test_every_adapter_names_what_tensors_are_alike(name: str) -> None:
    assert {*functions(name, "tensor.py"), *assigned(name, "tensor.py")} >= TENSOR


@pytest.mark.parametrize(
    ("base", "delegating"), [(adapter.Model, DelegatingModel), (adapter.Adapter, DelegatingAdapter)]
)
def test_who_delegates_forwards_every_member(base: type, delegating: type) -> None:
    """A member with a default would else be answered by the default, and not by what is delegated to."""
    set_at_its_making = {"capabilities", "table", "habits", "machinery", "library", "name"}
    members = {name for name in vars(base) if not name.startswith("_")} - set_at_its_making
    assert members - set(vars(delegating)) == set()
