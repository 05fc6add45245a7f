"""Hold what PaDiff's proxies answer, and what the checks of its dumps refuse, on the toy framework."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from padiff import auto_diff, check_dataloader, check_params, check_report, check_weights, create_model
from padiff.errors import InputError
from padiff.testing.toy import rows

from .generated import numbers


class Net(rows.Module):
    """Attention between two linear layers."""

    def __init__(self, *, bias: bool = True, extra: bool = False) -> None:
        self.first = rows.Linear(4, 4)
        self.mixing = rows.Attention(4, 2)
        self.last = rows.Linear(4, 4, bias=bias)
        if extra:
            self.extra = rows.Linear(7, 5)

    def forward(self, x: Any) -> Any:
        return self.last(self.mixing(self.first(x)))


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def dumped(name: str, model: Any, *, calls: int = 1) -> str:
    """Run a model, dump what it did and what it holds, and return the folder."""
    proxy = create_model(model, name)
    for _ in range(calls):
        proxy.backward(proxy(rows.Tensor(numbers(2, 3, 4))).sum())
    proxy.dump_report(name)
    proxy.dump_params(name)
    return name


def test_a_proxy_shows_the_model_as_padiffs_do() -> None:
    net = Net()
    proxy = create_model(net)
    assert repr(proxy) == "Model(toy::Net)"
    assert (proxy.class_name, proxy.fullname, proxy.get_device()) == ("Net", "toy::Net", "cpu")
    assert list(proxy.submodels())[:2] == [net, net.first]
    assert dict(proxy.named_submodels())["last"] is net.last
    assert [name for name, _ in proxy.named_parameters(recursively=False)] == []
    found = dict(proxy.named_parameters(recursively=True))
    assert found["last.bias"].param is net.last.bias
    assert len(list(proxy.parameters(recursively=True))) == len(found)
    assert found["last.bias"].numpy().shape == (4,)
    assert found["last.bias"].grad() is None
    proxy.backward(proxy(rows.Tensor(numbers(2, 3, 4))).sum())
    np.testing.assert_allclose(found["last.bias"].grad(), np.full(4, 6.0))
    assert not hasattr(proxy, "__no_such__")


def test_a_report_lists_each_call_and_its_backward_pass() -> None:
    proxy = create_model(Net())
    proxy.backward(proxy(rows.Tensor(numbers(2, 3, 4), requires_grad=True)).sum())
    items = proxy.report.items
    assert [item.type for item in items] == ["forward"] * (len(items) // 2) + ["backward"] * (len(items) // 2)
    assert items[0].tensors_for_compare()[0].shape == (2, 3, 4)
    assert items[-1].tensors_for_compare()[0].shape == (2, 3, 4)
    assert str(items[1]) == "ReportItem: \n    type=forward\n    step_idx: 1\n    net: Linear\n"
    assert str(proxy.report).splitlines()[:2] == ["Report:", "    0: [Net]"]


def test_opaque_modules_map_themselves() -> None:
    proxy = create_model(Net())
    assert proxy.auto_layer_map("base") is True
    assert proxy.listed.layer_map == ["mixing"]
    with pytest.raises(InputError, match=r"model_place is 'left'\.\nHint: one of 'base', 'raw'"):
        proxy.auto_layer_map("left")


def test_a_list_that_changes_between_runs_holds_for_the_next() -> None:
    proxy = create_model(Net())
    assert len(proxy.report.calls) == 0
    proxy.update_white_list(proxy.model.last)
    proxy(rows.Tensor(numbers(2, 3, 4)))
    assert [call.path for call in proxy.report.calls] == ["", "last"]


def test_dumps_that_cannot_be_compared_are_refused_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    once, twice = dumped("once", Net()), dumped("twice", Net(), calls=2)
    assert check_report(once, twice) is False
    assert "once was called 1 times, twice 2 times" in capsys.readouterr().out
    with pytest.raises(InputError, match=r"diff_phase is 'sideways'\.\nHint: one of 'forward'"):
        check_report(once, twice, diff_phase="sideways")
    mapped = create_model(Net(), "mapped")
    mapped.set_layer_map([mapped.model.first])
    mapped(rows.Tensor(numbers(2, 3, 4)))
    mapped.dump_report("mapped")
    with pytest.raises(InputError, match="once maps 0 modules, mapped 1; expected as many"):
        check_report(once, "mapped")


def test_parameters_that_only_one_side_has_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    whole, bare, more = dumped("whole", Net()), dumped("bare", Net(bias=False)), dumped("more", Net(extra=True))
    assert check_weights(whole, bare) is False
    assert "last.bias (bias) is in whole only" in capsys.readouterr().out
    assert check_weights(whole, more) is False
    assert "extra.weight, extra.bias of more have no counterpart" in capsys.readouterr().out
    ungraded = create_model(Net(), "ungraded")
    ungraded.dump_params("ungraded")
    assert check_params(whole, "ungraded") is False
    assert "ungraded has no grad" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"records": None}, "was not written by this padiff"),
        ("half", "is damaged"),
        ("other", "is damaged: it holds a DumpedParameters"),
    ],
)
def test_a_report_of_another_making_is_refused(content: Any, said: str) -> None:
    folder = dumped("made", Net())
    file = Path(folder, "report.json")
    if content == "half":
        file.write_text(file.read_text()[:-200])
    else:
        text = Path(folder, "params.json").read_text() if content == "other" else json.dumps(content)
        file.write_text(text)
    with pytest.raises(InputError, match=said):
        check_report(folder, folder)


@pytest.mark.parametrize(
    ("ours", "theirs", "said"),
    [
        ({"x": 1}, {"y": 1}, "batch 0: one holds"),
        ({"x": "cat"}, {"x": "dog"}, "'cat' vs 'dog'"),
        ({"x": np.zeros(2)}, {"x": np.zeros(3)}, "shape [2] vs [3]"),
    ],
)
def test_a_batch_that_differs_is_named(ours: Any, theirs: Any, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert check_dataloader([ours], [theirs]) is False
    assert said in capsys.readouterr().out


def test_options_that_are_no_dict_are_refused() -> None:
    with pytest.raises(InputError, match="options is list; expected a dict"):
        auto_diff(Net(), Net(), ({"x": 1}, {"x": 1}), True, 1, ["atol"])
    with pytest.raises(InputError, match="per_step is 0; expected a whole number from 1"):
        create_model(Net()).try_dump(per_step=0)
