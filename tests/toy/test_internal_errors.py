"""Tell an error of padiff's own, or of an adapter, from one of the user's model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import padiff
from padiff.adapter import handed_on
from padiff.plugins import adapter_for
from padiff.recording import internal_errors, warn_if_internal
from padiff.recording._frames import own_line
from padiff.testing.toy import rows

from .generated import numbers


class Net(rows.Module):
    """A linear layer, and code of its own behind it."""

    def __init__(self, after: Any = lambda x: x) -> None:
        super().__init__()
        self.first = rows.Linear(4, 4)
        self.after = after

    def forward(self, x: Any) -> Any:
        return self.after(self.first(x))


def of_numpy(x: Any) -> Any:
    return np.array_split(np.ones(3), 0)


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Break what keeps the arguments of a call, as a version of a framework may that padiff does not know."""
    monkeypatch.setattr("padiff.recording._record.plain", None)


@pytest.mark.usefixtures("broken")
def test_an_error_of_padiffs_own_is_told_as_such() -> None:
    with pytest.raises(padiff.InternalError) as caught:
        padiff.diff(Net(), Net(), (numbers(),))
    told = str(caught.value)
    assert told.startswith("the reference: padiff, or its toy adapter, failed itself: TypeError at ")
    assert "recording/_record.py:" in told
    assert f"With padiff {padiff.__version__}, Python 3." in told
    assert ", toy " in told
    assert "nothing of the model" in told
    assert "Hint: please report it" in told
    assert not isinstance(caught.value, padiff.ForwardError)
    assert isinstance(caught.value.__cause__, TypeError)


@pytest.mark.parametrize("after", [of_numpy, lambda x: x.no_such, lambda x: int("one")], ids=["numpy", "own", "plain"])
def test_an_error_of_the_models_code_is_the_models(after: Any) -> None:
    with pytest.raises(padiff.ForwardError, match="the reference: the toy model Net raised"):
        padiff.diff(Net(after), Net(), (numbers(),))
    with pytest.raises(padiff.ForwardError, match="the candidate: the toy model Net raised"):
        padiff.diff(Net(), Net(after), (numbers(),))


def test_what_padiff_calls_in_the_users_place_raises_for_the_user() -> None:
    adapter = adapter_for(Net())
    for function, args in ((len, (3,)), (np.ones, (-1,)), (int, ("one",))):
        with pytest.raises((TypeError, ValueError)) as caught:
            handed_on(function, args)
        assert own_line(caught.value, (adapter,)) is None


def test_no_memory_is_no_fault_of_code() -> None:
    with pytest.raises(MemoryError), internal_errors(adapter_for(Net())):
        handed_on(exec, ("raise MemoryError",))
    for error in (MemoryError(), type("OutOfMemoryError", (RuntimeError,), {})()):
        assert own_line(error, (adapter_for(Net()),)) is None


def test_an_adapter_that_fails_outside_of_a_run_is_named_too(monkeypatch: pytest.MonkeyPatch) -> None:
    adapter = adapter_for(Net())
    monkeypatch.setattr(type(adapter), "own", (__file__,))

    def failing(self: Any, model: Any) -> Any:
        msg = "no such hook"
        raise AttributeError(msg)

    monkeypatch.setattr(type(adapter), "wrap", failing)
    with pytest.raises(padiff.InternalError, match=r"padiff failed itself: AttributeError at .*_errors.py:\d+"):
        padiff.diff(Net(), Net(), (numbers(),))
    with pytest.raises(TypeError, match="no option"):
        padiff.diff(Net(), Net(), (numbers(),), atol=1)


@pytest.mark.parametrize(
    ("part", "slip"),
    [
        ("padiff.forcing._replay._held_by", lambda x: x * 1.1),
        ("padiff.forcing._bench.ReplayRequest", lambda x: x * 1.1),
        ("padiff.recording._record._Bystander", lambda x: (x, 0.8)),
    ],
)
def test_what_fails_in_a_run_that_is_only_tried_is_told(monkeypatch: pytest.MonkeyPatch, part: str, slip: Any) -> None:
    """What a model or a framework lacks is no error there, and a failure of padiff's own was none."""
    models = Net(lambda x: (x, 0.7)) if part.endswith("Bystander") else Net(), Net(slip)
    assert not padiff.diff(*models, (numbers(),)).aligned
    monkeypatch.setattr(part, None)
    with pytest.warns(padiff.InternalWarning, match="failed itself: TypeError at "):
        report = padiff.diff(*models, (numbers(),))
    assert not report.aligned
    with pytest.raises(padiff.InternalWarning):  # so that padiff's own tests stop at it
        padiff.diff(*models, (numbers(),))


def test_what_an_adapter_does_may_raise_for_its_framework(monkeypatch: pytest.MonkeyPatch) -> None:
    """A framework's function that has no kernel raises in the line of an adapter that calls it."""
    adapter = adapter_for(Net())
    monkeypatch.setattr(type(adapter), "own", (__file__,))
    with pytest.raises(padiff.InternalError) as caught, internal_errors(adapter):
        int("one")
    warn_if_internal(caught.value)


@pytest.mark.parametrize(
    ("hooked_only", "hint"), [(True, "without padiff's hooks it runs"), (False, "without padiff first")]
)
def test_a_model_that_raises_under_hooks_alone_is_told_so(hooked_only: bool, hint: str) -> None:
    """A MindSpore cell under `vmap`: to call the model without padiff, as the hint said, told nothing."""

    class Transformed(Net):
        def forward(self, x: Any) -> Any:
            if self.first.hooks or not hooked_only:
                msg = "cannot transform"
                raise RuntimeError(msg)
            return self.first(x)

    hint = "without padiff's hooks it runs" if hooked_only else "without padiff first"
    with pytest.raises(padiff.ForwardError, match=hint):
        padiff.diff(Net(), Transformed(), (numbers(2, 4),))
