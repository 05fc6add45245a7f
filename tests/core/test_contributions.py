"""What plugins contribute beside adapters: discovery hook by hook, conflicts, versions, metrics, formats, transfers."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import padiff
from padiff import Metric, Renderer, Report, SpecialTransfer, plugins
from padiff.errors import InputError, PluginError, PluginWarning
from padiff.judging import Measures, measures_of, rule_of, rule_of_numbers
from padiff.options import DiffOptions
from padiff.plugins import State

from .site import Site

GOOD = """
import padiff

def mean(reference, candidate):
    '''Difference of the means.

    Which is a bad metric.
    '''
    return float(abs(reference.mean() - candidate.mean()))

def shout(report):
    return "ALIGNED" if report.aligned else "PARTED"

def same(arrays):
    return dict(arrays)

@padiff.hookimpl
def padiff_metrics():
    yield padiff.Metric("mean", mean, limit=0.5)

@padiff.hookimpl
def padiff_renderers():
    return [padiff.Renderer("shout", shout, suffixes=[".txt2"])]

@padiff.hookimpl
def padiff_transfers():
    return [padiff.SpecialTransfer("A", "B", same)]
"""
HOOKS = {"padiff_metrics": "metric", "padiff_renderers": "renderer", "padiff_transfers": "special transfer"}


def spoiled(hook: str, body: str) -> str:
    """Return the good plugin with one hook that does something else."""
    return f"{GOOD}\n@padiff.hookimpl\ndef {hook}():\n    {body}\n"


def rows(distribution: str) -> dict[tuple[str, str], plugins.Contributed]:
    return {(row.sort, row.name): row for row in plugins.contributed() if row.distribution == distribution}


# -- discovery


def test_what_a_plugin_gives_is_there_and_described(site: Site) -> None:
    site.plugin("acme", GOOD)
    found = rows("acme")
    assert set(found) == {("metric", "mean"), ("renderer", "shout"), ("special transfer", "A -> B")}
    assert {row.state for row in found.values()} == {State.AVAILABLE}
    assert found["metric", "mean"].doc == "Difference of the means."
    assert [row.name for row in plugins.installed()] == []


def test_padiffs_own_come_through_the_same_hooks_and_last(site: Site) -> None:
    site.plugin("acme", GOOD)
    rows = plugins.contributed()
    own = [(row.sort, row.name) for row in rows if row.distribution == "padiff-core"]
    renderers = [("renderer", "text"), ("renderer", "json"), ("renderer", "html")]
    readers = [("reader", "msprobe"), ("reader", "padiff-dump"), ("reader", "reprod_log")]
    assert own == [("metric", "rel_l2"), ("metric", "max_abs"), *renderers, *readers]
    assert [row.distribution for row in rows[-6:]] == ["padiff-core"] * 6


BROKEN = {
    "raising": ("return [1 / 0]", "raised ZeroDivisionError: division by zero at "),
    "lazily-raising": ("yield from ()\n    raise SystemExit(3)", "raised SystemExit: 3 at "),
    "wrong-type": ("return [7]", "gave a int; expected padiff."),
    "no-list": ("return 7", "raised TypeError: 'int' object is not iterable"),
}


@pytest.mark.parametrize("fault", BROKEN)
@pytest.mark.parametrize("hook", HOOKS)
def test_a_plugin_that_fails_in_one_hook_loses_that_one_alone(site: Site, hook: str, fault: str) -> None:
    body, said = BROKEN[fault]
    site.plugin("acme", spoiled(hook, body))
    site.plugin("other", GOOD.replace('"mean"', '"middle"').replace('"shout"', '"cry"').replace('"A"', '"C"'))
    with pytest.warns(PluginWarning) as caught:
        found = rows("acme")
    (message,) = (str(one.message) for one in caught)
    assert message.startswith(f"the {HOOKS[hook]}s of the plugin 'acme' (acme 1.0) are left out: {hook}() ")
    assert said in message
    assert "\nHint: pip install --upgrade padiff-core acme, or uninstall it" in message
    broken = found.pop((HOOKS[hook], "acme"))
    assert (broken.state, said in str(broken.why)) == (State.BROKEN, True)
    assert [row.state for row in found.values()] == [State.AVAILABLE] * 2
    assert [row.state for row in rows("other").values()] == [State.AVAILABLE] * 3


def test_one_thing_of_another_type_costs_the_others_nothing(site: Site) -> None:
    site.plugin("acme", spoiled("padiff_metrics", "return ['cosine', padiff.Metric('mean', mean)]"))
    with pytest.warns(PluginWarning, match=r"padiff_metrics\(\) gave a str; expected padiff\.Metric"):
        found = rows("acme")
    assert found["metric", "mean"].state is State.AVAILABLE


def test_a_thing_itself_instead_of_a_list_is_told_so(site: Site) -> None:
    site.plugin("acme", spoiled("padiff_metrics", "return padiff.Metric('mean', mean)"))
    with pytest.warns(PluginWarning, match=r"padiff_metrics\(\) gave a Metric; expected a list of them"):
        plugins.contributed()


def test_a_hook_that_this_padiff_does_not_have_costs_the_others_nothing(site: Site) -> None:
    site.plugin("acme", GOOD + "\n@padiff.hookimpl\ndef padiff_painters(): return []\n")
    with pytest.warns(PluginWarning, match=r"implements padiff_painters\(\), and this padiff has padiff_adapters, "):
        found = rows("acme")
    assert found["plugin", "acme"].state is State.BROKEN
    assert found["metric", "mean"].state is State.AVAILABLE


def test_an_adapter_of_a_plugin_lives_though_its_metrics_do_not(site: Site) -> None:
    site.framework("fakefw")
    site.adapter("acme", "fakefw")
    path = site.folder / "acme_plugin.py"
    path.write_text(path.read_text() + "\n@padiff.hookimpl\ndef padiff_metrics():\n    raise OSError('no disk')\n")
    with pytest.warns(PluginWarning, match=r"padiff_metrics\(\) raised OSError: no disk at .*acme_plugin\.py:\d+"):
        assert [row.state for row in plugins.installed()] == [State.AVAILABLE]


@pytest.mark.parametrize(
    ("hook", "given"),
    [
        ("padiff_metrics", "padiff.Metric('mean', mean, api=99)"),
        ("padiff_renderers", "padiff.Renderer('shout', shout, api=99)"),
        ("padiff_transfers", "padiff.SpecialTransfer('A', 'B', same, api=99)"),
        ("padiff_adapters", "padiff.AdapterInfo('acme', ['acme'], 'acme:A', api=99)"),
    ],
)
def test_what_was_written_for_another_interface_is_refused(site: Site, hook: str, given: str) -> None:
    site.plugin("acme", spoiled(hook, f"return [{given}]"))
    said = r"\(acme 1\.0\) is left out: it has interface version 99 and this padiff 1: padiff-core is older"
    with pytest.warns(PluginWarning, match=said) as caught:
        states = [row.state for row in rows("acme").values()]
    assert len(caught) == 1
    assert sorted(states).count(State.BROKEN) == 1


@pytest.mark.parametrize(
    ("hook", "name"), [("padiff_metrics", "mean"), ("padiff_renderers", "shout"), ("padiff_transfers", "A -> B")]
)
def test_two_of_one_name_are_told_with_both_and_neither_is_used(site: Site, hook: str, name: str) -> None:
    site.plugin("acme", GOOD)
    other = GOOD
    for one in HOOKS:
        if one != hook:
            other = other.replace(f"def {one}", f"def _{one}").replace(f"@padiff.hookimpl\ndef _{one}", f"def _{one}")
    site.plugin("rival", other)
    said = rf"2 {HOOKS[hook]}s have the name '{name}': '{name}' \(acme 1\.0\) and '{name}' \(rival 1\.0\); expected one"
    with pytest.warns(PluginWarning, match=said):
        states = {row.state for row in plugins.contributed() if row.name == name}
    assert states == {State.CONFLICT}
    assert name not in [row.name for row in plugins.contributions(hook)]
    if hook == "padiff_metrics":
        with pytest.raises(PluginError, match=r"mean' \(rival 1\.0\)"):
            rule_of(asked({"metric": "mean"}).tolerance)
        assert not measures_of(None)
    if hook == "padiff_renderers":
        with pytest.raises(PluginError, match=r"shout' \(acme 1\.0\) and 'shout' \(rival 1\.0\)"):
            Report((), ()).render("shout")
        assert Report((), ()).render("json")


def test_a_name_of_padiffs_own_stays_padiffs(site: Site) -> None:
    site.plugin("acme", spoiled("padiff_renderers", "return [padiff.Renderer('json', shout)]"))
    with pytest.warns(PluginWarning, match=r"'json' \(acme 1\.0\) is left out: padiff has a renderer of that name"):
        assert Report((), ()).render("json").startswith("{")


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Metric("", max), "name is ''"),
        (lambda: Metric("m", 3), "function is 3; expected a function"),  # type: ignore[arg-type]
        (lambda: Metric("m", max, better="up"), "better is 'up'; expected one of 'smaller', 'larger'"),
        (lambda: Renderer("r", repr, suffixes=["html"]), "suffixes has 'html'"),  # type: ignore[arg-type]
        (lambda: SpecialTransfer("", "B", dict), "reference is ''"),
        (lambda: SpecialTransfer("A", "B", dict, takes="tensors"), "takes is 'tensors'"),
    ],
)
def test_what_makes_no_sense_is_refused_where_it_is_written(make: Callable[[], object], said: str) -> None:
    with pytest.raises((TypeError, ValueError), match=said):
        make()


# -- metrics


def asked(tolerance: Any) -> DiffOptions:
    return DiffOptions(1, "both", True, tolerance, 0)


ONES, TWOS = np.ones(4, np.float32), np.full(4, 2, np.float32)


def test_a_contributed_metric_can_be_the_tolerance(site: Site) -> None:
    site.plugin("acme", GOOD)
    for tolerance, passes in (
        ({"metric": "mean"}, False),
        ({"metric": "mean", "max": 1}, True),
        ({"metric": "mean", "min": 0.9, "max": 1.1}, True),
        ({"metric": "mean", "min": 2}, False),
        ({"metric": "max_abs", "max": 1.0}, True),
        ({"metric": Metric("mine", lambda a, b: 0.25), "max": 0.3}, True),
        ({"metric": Metric("nan", lambda a, b: math.nan), "max": 0.3}, False),
    ):
        rule = rule_of(asked(tolerance).tolerance)
        assert rule is not None
        assert rule(ONES, TWOS) is passes
        assert rule(ONES, TWOS[:2]) is False


@pytest.mark.parametrize(
    ("tolerance", "said"),
    [
        ({"metric": "median"}, r"there is no metric 'median'\.\nHint: one of 'rel_l2', 'max_abs', 'mean'"),
        (
            {"metric": "max_abs"},
            r"names the metric 'max_abs', which has no limit of its own, and no bound\.\nHint: .*'max'",
        ),
        ({"metric": "mean", "atol": 1}, "atol beside a metric"),
        ({"metric": "mean", "max": "1"}, "max='1'"),
        ({"metric": "mean", "max": math.nan}, "max=nan"),
        ({"metric": "mean", "min": 2, "max": 1}, "min=2 above max=1"),
        ({"metric": 3}, "metric=3"),
    ],
)
def test_a_tolerance_that_makes_no_sense_says_why(site: Site, tolerance: Any, said: str) -> None:
    site.plugin("acme", GOOD)
    with pytest.raises(InputError, match=said):
        rule_of(asked(tolerance).tolerance)


def test_the_loss_is_no_matter_of_metrics(site: Site) -> None:
    """The cosine of two positive numbers is 1, whatever they are."""
    given = asked({"metric": Metric("cosine", lambda a, b: 1.0), "min": 0.9})
    assert rule_of(given.tolerance) is not None
    assert rule_of_numbers(given.tolerance) is None


def test_a_metric_that_raises_as_the_tolerance_is_an_error_that_names_it(site: Site) -> None:
    site.plugin("acme", GOOD.replace("return float(", "return 1 / 0 * float("))
    rule = rule_of(asked({"metric": "mean", "max": 1}).tolerance)
    assert rule is not None
    said = r"metric 'mean' \(acme 1\.0\), asked for as the tolerance, raised ZeroDivisionError: .* at .*\.py:\d+"
    with pytest.raises(PluginError, match=said + r", given float32\[4\] and float32\[4\]"):
        rule(ONES, TWOS)


@pytest.mark.parametrize(
    ("gives", "said"),
    [
        ("1 / 0", "raised ZeroDivisionError"),
        ("'far'", "raised TypeError: mean gave a str; expected a number"),
        ("reference", "raised TypeError: mean gave a ndarray; expected a number"),
        ("reference.__iadd__(1)", "raised ValueError: output array is read-only"),
    ],
)
def test_a_metric_that_fails_is_left_out_and_the_others_go_on(site: Site, gives: str, said: str) -> None:
    site.plugin("acme", GOOD.replace("return float(", f"return {gives}\n    return float("))
    site.plugin("other", GOOD.replace('"mean"', '"middle"').split("@padiff.hookimpl\ndef padiff_renderers")[0])
    measures = measures_of(None)
    for _ in range(2):
        assert [(one.name, one.value, one.passes) for one in measures(ONES, TWOS)] == [("middle", 1.0, False)]
    (trouble,) = measures.trouble
    assert trouble.startswith(
        "the metric 'mean' (acme 1.0) of padiff_metrics() is left out from here on: its function "
    )
    assert said in trouble
    assert "\nHint: tell the author of acme" in trouble
    assert ONES.sum() == 4
    assert rows("acme")["metric", "mean"].state is State.BROKEN


def test_several_arrays_show_the_value_that_is_furthest_off(site: Site) -> None:
    site.plugin("acme", GOOD)
    pairs = [(ONES, ONES), (ONES, TWOS), (ONES, TWOS[:2]), (ONES[:0], ONES[:0])]
    assert [one.value for one in measures_of(None).worst(pairs)] == [1.0]
    larger = Metric("near", lambda a, b: float(a.size), better="larger")
    row = plugins.Row("near", "acme", None, "padiff_metrics", larger)
    assert [one.value for one in Measures([row]).worst([(ONES, TWOS), (ONES[:2], TWOS[:2])])] == [2.0]


def test_without_plugins_nothing_is_measured(site: Site) -> None:
    assert not measures_of(None)
    assert measures_of(None)(ONES, TWOS) == ()


# -- formats


def test_a_contributed_format_is_rendered_by_name(site: Site) -> None:
    site.plugin("acme", GOOD)
    assert Report((), ()).render("shout") == "ALIGNED"
    assert plugins.renderer_for("report.txt2").name == "shout"


def test_an_unknown_format_lists_the_contributed_ones_too(site: Site) -> None:
    site.plugin("acme", GOOD)
    with pytest.raises(InputError, match=r"no format 'pdf'\.\nHint: one of 'text', 'json', 'html', 'shout'"):
        Report((), ()).render("pdf")


@pytest.mark.parametrize(
    ("gives", "said"),
    [
        ("1 / 0", r"raised ZeroDivisionError: division by zero at .*acme_plugin\.py:\d+"),
        ("b''", "gave a bytes; expected a str"),
    ],
)
def test_a_renderer_that_fails_is_an_error_that_names_it(site: Site, gives: str, said: str) -> None:
    site.plugin("acme", GOOD.replace('return "ALIGNED" if', f"return {gives} if"))
    with pytest.raises(PluginError, match=rf"the renderer 'shout' \(acme 1\.0\) {said}"):
        Report((), ()).render("shout")
    assert Report((), ()).render("json")


# -- special transfers


def test_the_users_own_come_first_and_can_be_taken_back(site: Site) -> None:
    site.plugin("acme", GOOD)
    assert [row.name for row in plugins.transfers()] == ["A -> B"]
    first = padiff.register_transfer(SpecialTransfer("C", "D", dict))
    with padiff.register_transfer(SpecialTransfer("E", "F", dict)):
        assert [row.name for row in plugins.transfers()] == ["E -> F", "C -> D", "A -> B"]
    assert [row.name for row in plugins.transfers()] == ["C -> D", "A -> B"]
    second = padiff.register_transfer(SpecialTransfer("C", "D", list))
    first.close()
    assert plugins.transfers()[0].item.function is list
    second.close()
    second.close()
    assert [row.name for row in plugins.transfers()] == ["A -> B"]


@pytest.mark.parametrize("transfer", [dict, None, SpecialTransfer("A", "B", dict, api=99)])
def test_only_a_special_transfer_can_be_registered(transfer: Any) -> None:
    with pytest.raises(InputError, match=r"cannot be registered: .*\nHint: padiff\.register_transfer"):
        padiff.register_transfer(transfer)


@pytest.mark.parametrize(
    ("pattern", "name", "fits"),
    [
        ("Attention", "my.port.Attention", True),
        ("port.Attention", "my.port.Attention", True),
        ("my.port.Attention", "my.port.Attention", True),
        ("*Attention", "my.port.SelfAttention", True),
        ("Attention", "my.port.SelfAttention", False),
        ("Attention", "Attention", True),
        ("attention", "Attention", False),
    ],
)
def test_a_pattern_names_a_class_qualified_or_not(pattern: str, name: str, fits: bool) -> None:
    assert SpecialTransfer(pattern, "B", dict).fits(0, "torch", name) is fits
    assert SpecialTransfer(pattern, "B", dict, frameworks=("paddle", None)).fits(0, "torch", name) is False


def test_a_warning_comes_once_for_all_hooks(site: Site) -> None:
    site.plugin("acme", spoiled("padiff_metrics", "return 1 / 0"))
    with pytest.warns(PluginWarning):
        plugins.contributed()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plugins.contributed()
        plugins.contributions("padiff_metrics")
