"""Special transfers in a diff, of the user and of plugins: copied, verified, compared, or told where that is not so."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import padiff
from padiff.errors import PluginError, PluginWarning

Install = Callable[[str, str], None]
Arrays = Mapping[str, Any]

WIDTH = 6
TURNED = list(reversed(range(WIDTH)))
INPUTS = (np.random.default_rng(0).standard_normal((4, WIDTH), dtype="float32"),)


class Stacked(nn.Module):
    """Hold query and key in one array, with its rows from the last one on, and running statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.randn(2, WIDTH, WIDTH))
        self.b = nn.Parameter(torch.randn(2, WIDTH))
        self.norm = nn.BatchNorm1d(WIDTH)

    def forward(self, x: Any) -> Any:
        q, k = (x @ self.w[i][TURNED] + self.b[i] for i in range(2))
        return self.norm(q * k.sigmoid())


class Listed(nn.Module):
    """Hold the same as two layers, and a third array that nothing uses."""

    def __init__(self, *, scale: float = 1.0, spare: bool = False) -> None:
        super().__init__()
        self.q, self.k = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.bn = nn.BatchNorm1d(WIDTH)
        self.scale = scale
        if spare:
            self.spare = nn.Parameter(torch.ones(3))

    def forward(self, x: Any) -> Any:
        q = nn.functional.linear(x, self.q.weight / self.scale, self.q.bias)
        y = self.bn(q * self.k(x).sigmoid())
        return y + self.spare.sum() if hasattr(self, "spare") else y


def taken_apart(arrays: Arrays) -> dict[str, Any]:
    found = {}
    for i, name in enumerate("qk"):
        found[f"{name}.weight"], found[f"{name}.bias"] = arrays["w"][i][TURNED].T, arrays["b"][i]
    norm = {name: array for name, array in arrays.items() if name.startswith("norm.")}
    return found | {name.replace("norm.", "bn."): array for name, array in norm.items()}


def scaled(arrays: Arrays) -> dict[str, Any]:
    found = taken_apart(arrays)
    return found | {"q.weight": found["q.weight"] * 2}


def halved(arrays: Arrays) -> dict[str, Any]:
    found = taken_apart(arrays)
    return found | {"q.weight": found["q.weight"] / 2}


def special(function: Callable[..., Any] = taken_apart, **options: Any) -> padiff.SpecialTransfer:
    return padiff.SpecialTransfer("Stacked", "Listed", function, **options)


def pair(**options: Any) -> tuple[nn.Module, nn.Module]:
    """Return two models with two such modules each, between layers that any table knows."""
    torch.manual_seed(0)
    body = [nn.Linear(WIDTH, WIDTH), Stacked(), Stacked(), nn.Linear(WIDTH, 3)]
    other = [nn.Linear(WIDTH, WIDTH), Listed(**options), Listed(**options), nn.Linear(WIDTH, 3)]
    return nn.Sequential(*body), nn.Sequential(*other)


def diff(rule: padiff.SpecialTransfer | None, *models: nn.Module, **options: Any) -> padiff.Report:
    if rule is None:
        return padiff.diff(*models, INPUTS, **options)
    with padiff.register_transfer(rule):
        return padiff.diff(*models, INPUTS, **options)


def texts(report: padiff.Report) -> list[str]:
    return [note.text for note in report.notes]


def stepped(report: padiff.Report) -> set[str]:
    """Return the parameters that the sources say to differ after the step."""
    told = (one for source in report.sources for one in source.evidence if one.kind == "stepped_alike")
    return {path for one in told for path in one.figures["paths"]}


# -- what works


def test_parameters_are_copied_verified_and_their_modules_compared_as_a_whole() -> None:
    models = pair()
    report = diff(special(), *models)
    assert report.aligned, report
    assert report.transfer is not None
    assert (report.transfer.copied, report.transfer.verified, report.transfer.buffers) == (22, 22, 6)
    assert texts(report) == []
    assert torch.equal(models[1][1].k.weight, models[0][1].w[1][TURNED].T)
    assert torch.equal(models[1][2].bn.running_mean, models[0][2].norm.running_mean)


def test_without_it_nothing_proves_which_is_which() -> None:
    report = diff(None, *pair())
    assert not report.aligned
    assert report.transfer is not None
    assert {"1.q.weight", "1.k.weight", "2.q.weight", "2.k.weight"} <= set(report.transfer.unverified)


def test_the_order_of_execution_and_names_tell_the_modules_apart() -> None:
    class Crossed(nn.Module):
        def __init__(self, kind: type[nn.Module], *, turned: bool) -> None:
            super().__init__()
            for name in ("second", "first") if turned else ("first", "second"):
                setattr(self, name, kind())

        def forward(self, x: Any) -> Any:
            return self.second(self.first(x))

    torch.manual_seed(0)
    report = diff(special(), Crossed(Stacked, turned=False), Crossed(Listed, turned=True))
    assert report.aligned, report


def test_gradients_are_compared_where_the_function_only_rearranges() -> None:
    models = pair()
    models[1][2].k.bias.register_hook(lambda gradient: gradient * 3)
    report = diff(special(), *models)
    assert [(s.phase, s.candidate.path, s.what) for s in report.sources] == [("backward", "2.k", "gradient of k.bias")]


def test_buffers_after_the_run_are_compared() -> None:
    models = pair()
    models[1][1].bn.momentum = 0.5
    report = diff(special(), *models)
    assert {(s.phase, s.candidate.path) for s in report.sources} == {("buffer", "1.bn")}


def test_gradients_that_nothing_tells_are_not_compared_and_noted() -> None:
    models = pair(scale=2.0)
    models[1][2].q.weight.register_hook(lambda gradient: gradient * 3)
    report = diff(special(scaled), *models)
    assert report.aligned, report
    said = "gradients of q.weight are not compared: the special transfer 'Stacked -> Listed' ("
    assert [text.startswith(said) for text in texts(report)] == [True, True]
    assert texts(report)[0].endswith(") does more than rearrange, and names no gradients")
    assert not any("gradients" in text for text in texts(diff(special(scaled), *pair(scale=2.0), phase="forward")))


def test_gradients_are_compared_where_the_transfer_tells_them() -> None:
    assert diff(special(scaled, gradients=halved), *pair(scale=2.0)).aligned
    wrong = diff(special(scaled, gradients=taken_apart), *pair(scale=2.0))
    assert {(s.phase, s.what) for s in wrong.sources} == {("backward", "gradient of q.weight")}
    assert len(wrong.sources) == 2


def test_gradients_that_the_transfer_leaves_out_are_not_compared_and_noted() -> None:
    def all_but_one(arrays: Arrays) -> dict[str, Any]:
        return {name: array for name, array in taken_apart(arrays).items() if name != "q.weight"}

    report = diff(special(scaled, gradients=all_but_one), *pair(scale=2.0))
    assert report.aligned, report
    assert ["gradients of q.weight are not compared" in text for text in texts(report)] == [True, True]


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (lambda a: {"w": a["w"].T, "v": a["v"][::-1]}, {"w", "v"}),
        (lambda a: {"w": a["w"] * 1.0, "v": a["v"] + 0}, {"w", "v"}),
        (lambda a: {"w": -a["w"], "v": a["v"]}, {"v"}),
        (lambda a: {"w": a["w"], "v": np.sort(a["v"])[::-1]}, {"w"}),
        (lambda a: {"w": a["w"], "v": np.zeros(4)}, {"w"}),
        (lambda a: {"w": a["w"] * a["v"], "v": a["v"]}, set()),
        (lambda a: {"w": a["w"], "v": a["w"][0]}, set()),
        (lambda a: {"w": a["w"], "v": a["v"].mean(keepdims=True).repeat(4)}, {"w"}),
    ],
    ids=["moved", "same", "turned", "sorted", "constant", "scaled", "twice", "averaged"],
)
def test_what_only_moves_is_found_out(function: Callable[..., Any], told: set[str]) -> None:
    """A gradient is known where its elements were moved, and nothing else depends on them."""

    class Left(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w, self.v = nn.Parameter(torch.rand(4, 4) + 1), nn.Parameter(torch.rand(4) + 1)

        def forward(self, x: Any) -> Any:
            return x[:, :4] @ self.w + self.v

    class Right(Left):
        pass

    from padiff.forcing import LocalSide
    from padiff.parameters import Specials, same_names, units_of, values_of
    from padiff.plugins import adapter_for

    sides = [LocalSide(adapter_for(model).wrap(model)) for model in (Left(), Right())]
    with padiff.register_transfer(padiff.SpecialTransfer("*Left", "*Right", function)):
        specials = Specials(*(side.about for side in sides))
        units = (units_of(side.about, specials.on(index), values_of(side)) for index, side in enumerate(sides))
        matches = same_names(*units)
    assert matches is not None
    (match,) = matches
    assert {link.role for link in match.links if link.differentiated} == told


def test_optimizers_step_from_the_gradients_that_are_known() -> None:
    for transfer, scale in ((special(), 1.0), (special(scaled, gradients=halved), 2.0), (special(scaled), 2.0)):
        models = pair(scale=scale)
        optimizers = tuple(torch.optim.SGD(model.parameters(), lr=0.1) for model in models)
        report = diff(transfer, *models, optimizers=optimizers, steps=2)
        # A step is linear in the gradient, a scaled weight's is not the scaled step: that is a source, if it is judged.
        expected = {"1.q.weight", "2.q.weight"} if transfer.gradients else set()
        assert stepped(report) == expected, report


def test_a_step_of_another_size_is_named() -> None:
    models = pair()
    optimizers = tuple(torch.optim.SGD(m.parameters(), lr=lr) for m, lr in zip(models, (0.1, 0.2), strict=True))
    report = diff(special(), *models, optimizers=optimizers)
    assert "1.k.weight" in stepped(report), report


def test_values_are_compared_where_they_are_not_copied() -> None:
    models = pair()
    assert diff(special(), *models).aligned
    assert diff(special(), *models, transfer=False).aligned
    with torch.no_grad():
        models[1][1].q.bias += 1e-3
    report = diff(special(), *models, transfer=False)
    assert [(s.phase, s.candidate.path, s.what) for s in report.sources] == [("parameter", "1.q", "parameter q.bias")]
    assert report.sources[0].candidate.class_name == ""  # that of `1.q`, and not of the module around it


def test_what_is_ignored_stays_ignored() -> None:
    models = pair()
    with torch.no_grad():
        models[1][1].q.bias += 1
    layer_map = padiff.LayerMap()
    layer_map.ignore_recursively(models[1][1])
    with padiff.register_transfer(special()):
        report = padiff.diff(*models, INPUTS, transfer=False, mapping=layer_map)
    assert all(source.candidate.path != "1.q" for source in report.sources)


def test_it_serves_two_frameworks() -> None:
    import paddle

    class PaddleListed(paddle.nn.Layer):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.q, self.k = paddle.nn.Linear(WIDTH, WIDTH), paddle.nn.Linear(WIDTH, WIDTH)
            self.bn = paddle.nn.BatchNorm1D(WIDTH)

        def forward(self, x: Any) -> Any:
            return self.bn(self.q(x) * paddle.nn.functional.sigmoid(self.k(x)))

    def to_paddle(arrays: Arrays) -> dict[str, Any]:
        names = {"norm.running_mean": "bn._mean", "norm.running_var": "bn._variance"}
        found = {"bn.weight": arrays["norm.weight"], "bn.bias": arrays["norm.bias"]}
        found |= {theirs: arrays[ours] for ours, theirs in names.items()}
        for i, name in enumerate("qk"):
            found[f"{name}.weight"], found[f"{name}.bias"] = arrays["w"][i][TURNED], arrays["b"][i]
        return found

    torch.manual_seed(0)
    reference, candidate = nn.Sequential(Stacked()).eval(), paddle.nn.Sequential(PaddleListed())
    candidate.eval()
    transfer = padiff.SpecialTransfer("Stacked", "PaddleListed", to_paddle, frameworks=("torch", "paddle"))
    report = diff(transfer, reference, candidate)
    assert report.aligned, report
    assert report.transfer is not None
    assert report.transfer.verified == report.transfer.copied == 8
    other = padiff.SpecialTransfer("Stacked", "PaddleListed", to_paddle, frameworks=("paddle", "torch"))
    assert not diff(other, reference, candidate).aligned


def write(ours: Any, theirs: Any) -> None:
    arrays = {name: value.detach() for name, value in (*ours.named_parameters(), *ours.named_buffers())}
    state = {**taken_apart(arrays), "bn.num_batches_tracked": ours.norm.num_batches_tracked}
    theirs.load_state_dict(state)


def test_a_function_of_modules_writes_itself_and_what_nothing_tells_is_noted() -> None:
    models = pair()
    report = diff(special(write, takes="modules"), *models)
    assert report.aligned, report
    assert report.transfer is not None
    assert report.transfer.verified == report.transfer.copied
    assert all("writes to the module itself, and names no gradients" in text for text in texts(report))
    again = diff(special(write, takes="modules"), *models, transfer=False, phase="forward")
    assert again.aligned
    assert sum("its parameters are not compared" in text for text in texts(again)) == len(texts(again)) - 1 == 2
    assert any("zeros or ones hide" in text for text in texts(again))


# -- what is told


def test_a_transfer_that_is_wrong_is_never_called_verified() -> None:
    def swapped(arrays: Arrays) -> dict[str, Any]:
        found = taken_apart(arrays)
        return {**found, "q.weight": found["k.weight"], "k.weight": found["q.weight"]}

    report = diff(special(swapped), *pair())
    assert {(s.phase, s.candidate.path) for s in report.sources} == {("forward", "1"), ("forward", "2")}
    assert report.transfer is not None
    assert set(report.transfer.unverified) >= {"1.q.weight", "1.k.weight", "2.q.weight"}


def test_what_the_function_leaves_out_is_reported_on_both_sides() -> None:
    def partly(arrays: Arrays) -> dict[str, Any]:
        found = taken_apart({**arrays, "b": np.zeros((2, WIDTH))})
        return {name: array for name, array in found.items() if name != "bn.running_var"}

    class Blind(Mapping[str, Any]):
        """Show all arrays but one."""

        def __init__(self, arrays: Arrays) -> None:
            self.arrays = arrays

        def __getitem__(self, name: str) -> Any:
            return self.arrays[name]

        def __iter__(self) -> Any:
            return (name for name in self.arrays if name != "b")

        def __len__(self) -> int:
            return len(self.arrays) - 1

    report = diff(special(lambda arrays: partly(Blind(arrays))), *pair(spare=True))
    assert report.transfer is not None
    assert {"1.spare", "2.spare", "1.bn.running_var"} <= set(report.transfer.unmatched_candidate)
    assert {"1.b", "2.b"} <= set(report.transfer.unmatched_reference)
    assert not report.aligned


FAULTS = {
    "raises": ("1 / 0", "raised ZeroDivisionError: division by zero at "),
    "no-dict": ("[arrays]", "gave a list; expected a dict of arrays by name"),
    "unknown-name": ("{'weigth': arrays['weight']}", "gave 'weigth', and the candidate's module has 'weight', 'bias'"),
    "shape": ("{'weight': arrays['weight'][:2]}", "gave float32[2, 6] for 'weight'; expected numbers of shape [5, 6]"),
    "no-number": ("{'weight': [['a'] * 6] * 5}", "expected numbers of shape [5, 6]"),
    "in-place": ("{'weight': arrays['weight'].__iadd__(1)}", "raised ValueError: output array is read-only"),
}


class Old(nn.Linear):
    pass


class New(nn.Linear):
    pass


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("named_alike", [True, False])
def test_a_plugins_transfer_that_fails_is_left_out_and_the_diff_goes_on(
    installed: Install, fault: str, named_alike: bool
) -> None:
    """The modules are then matched as if there were no special transfer."""
    body, said = FAULTS[fault]
    installed("acme", PLUGIN.format(function=body))
    first = nn.Sequential(Old(WIDTH, 5), nn.Tanh(), nn.Linear(5, 3))
    second = nn.Sequential(New(WIDTH, 5), nn.Tanh(), nn.Linear(5, 3))
    if not named_alike:
        second = nn.Sequential(nn.Identity(), *second)
    with pytest.warns(PluginWarning) as caught:
        report = padiff.diff(first, second, INPUTS)
    (message,) = (str(one.message) for one in caught)
    assert message.startswith("the special transfer 'Old -> New' (acme 1.0) of padiff_transfers() ")
    assert said in message
    assert "for the reference's '0' (" in message
    assert "\nHint: fix acme, or uninstall it" in message
    assert report.aligned, report


PLUGIN = """
import padiff

def change(arrays):
    return {function}

@padiff.hookimpl
def padiff_transfers():
    return [padiff.SpecialTransfer("Old", "New", change)]
"""
SAME = PLUGIN.format(function="dict(arrays)")


@pytest.mark.parametrize("fault", FAULTS)
def test_ones_own_transfer_that_fails_is_an_error(fault: str) -> None:
    body, said = FAULTS[fault]
    function = eval(f"lambda arrays: {body}")
    models = nn.Sequential(Old(WIDTH, 5)), nn.Sequential(New(WIDTH, 5))
    before = models[1][0].weight.clone()
    with pytest.raises(PluginError) as caught:
        diff(padiff.SpecialTransfer("Old", "New", function), *models)
    assert said in str(caught.value)
    assert "\nHint: fix the function that was registered with padiff.register_transfer" in str(caught.value)
    assert torch.equal(models[1][0].weight, before)


def test_a_function_of_modules_that_fails_is_left_out_too(installed: Install) -> None:
    text = SAME.replace("(arrays)", "(ours, theirs)", 1).replace("dict(arrays)", "1 / 0")
    installed("acme", text.replace("change)", 'change, takes="modules")'))
    with pytest.warns(PluginWarning, match="raised ZeroDivisionError"):
        report = padiff.diff(nn.Sequential(Old(WIDTH, 5)), nn.Sequential(New(WIDTH, 5)), INPUTS)
    assert report.aligned


def test_gradients_that_fail_in_a_plugin_are_left_out_and_noted(installed: Install) -> None:
    text = SAME.replace("change)", "change, gradients=wrong)") + "\ndef wrong(arrays):\n    raise OSError('no disk')\n"
    installed("acme", text)
    with pytest.warns(
        PluginWarning, match=r"'Old -> New' \(acme 1\.0\) of padiff_transfers\(\) raised OSError: no disk"
    ):
        report = padiff.diff(nn.Sequential(Old(WIDTH, 5)), nn.Sequential(New(WIDTH, 5)), INPUTS)
    assert report.aligned
    assert any("gradients of weight, bias are not compared" in text for text in texts(report))


def test_two_plugins_for_the_same_classes_are_told_and_neither_is_used(installed: Install) -> None:
    installed("acme", PLUGIN.format(function="{'weight': arrays['weight'] * 2, 'bias': arrays['bias']}"))
    installed("rival", SAME.replace('"Old", "New"', '"*Old", "*New"'))
    with pytest.warns(PluginWarning) as caught:
        report = padiff.diff(nn.Sequential(Old(WIDTH, 5)), nn.Sequential(New(WIDTH, 5)), INPUTS)
    (message,) = (str(one.message) for one in caught)
    assert message.startswith(
        "2 special transfers concern the same classes: 'Old -> New' (acme 1.0) and '*Old -> *New' ("
    )
    assert message.endswith("Hint: pip uninstall all but one of acme, rival.")
    assert report.aligned


def test_ones_own_transfer_comes_before_a_plugins(installed: Install) -> None:
    installed("acme", PLUGIN.format(function="1 / 0"))
    models = nn.Sequential(Old(WIDTH, 5)), nn.Sequential(New(WIDTH, 5))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert diff(padiff.SpecialTransfer("Old", "New", dict), *models).aligned


def test_a_transfer_for_classes_that_are_not_there_changes_nothing(installed: Install) -> None:
    installed("acme", PLUGIN.format(function="1 / 0"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert padiff.diff(nn.Sequential(Old(WIDTH, 5)), nn.Sequential(nn.Linear(WIDTH, 5)), INPUTS).aligned
