"""Discovery, detection and loading of adapters, with plugins installed in a folder of the test's own."""

from __future__ import annotations

import functools
import importlib.metadata
import re
import subprocess
import sys
import textwrap
import types
import warnings

import numpy as np
import pytest

from padiff import plugins
from padiff.errors import AdapterError, MissingFramework, PluginWarning, UnknownModel
from padiff.plugins import State

from .site import ADAPTER, FRAMEWORK, PLUGIN, Site


def states() -> dict[str, State]:
    return {row.name: row.state for row in plugins.installed()}


def use(name: str) -> types.ModuleType:
    return importlib.import_module(name)


# -- detection


def test_a_users_subclass_is_known_by_its_base(site: Site) -> None:
    site.framework("fakefw")
    site.adapter("padiff-fake", "fakefw")
    site.module("my_port", "import fakefw\nclass Net(fakefw.Module): pass")
    assert plugins.adapter_for(use("my_port").Net()).name == "fakefw"


def test_the_first_claimed_class_of_the_mro_decides(site: Site) -> None:
    for name in ("fakefw", "other"):
        site.framework(name)
        site.adapter(f"padiff-{name}", name)
    site.module("mixed", "import fakefw, other\nclass Net(other.Module, fakefw.Module): pass")
    assert plugins.adapter_for(use("mixed").Net()).name == "other"


def test_a_class_that_names_another_home_is_still_known(site: Site) -> None:
    site.framework("fakefw", FRAMEWORK + "class Parameter(Tensor): __module__ = 'abc'\n")
    site.adapter("padiff-fake", "fakefw")
    adapter = plugins.adapter_of_tensor(use("fakefw").Parameter())
    assert adapter is not None
    assert adapter.name == "fakefw"


def test_a_proxy_in_sys_modules_decides_nothing(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.framework("fakefw")
    site.framework("other")
    site.adapter("padiff-fake", "fakefw")
    site.adapter("padiff-other", "other")
    model = use("fakefw").Module()
    monkeypatch.setitem(sys.modules, "other", use("fakefw"))
    assert plugins.adapter_for(model).name == "fakefw"


def test_an_adapter_is_made_once(site: Site) -> None:
    site.framework("fakefw")
    site.adapter("padiff-fake", "fakefw")
    model = use("fakefw").Module()
    assert plugins.adapter_for(model) is plugins.adapter_for(use("fakefw").Module())
    assert plugins.load(plugins.adapters()[0]) is plugins.adapter_for(model)


@pytest.mark.parametrize("value", [1, "text", None, [1], np.zeros(2), np.float32(1), int])
def test_what_is_no_tensor_belongs_to_no_adapter(site: Site, value: object) -> None:
    site.framework("fakefw")
    site.adapter("padiff-fake", "fakefw")
    assert plugins.adapter_of_tensor(value) is None
    assert "fakefw" not in sys.modules


def test_a_frameworks_module_is_no_tensor(site: Site) -> None:
    site.framework("fakefw")
    site.adapter("padiff-fake", "fakefw")
    assert plugins.adapter_of_tensor(use("fakefw").Module()) is None


# -- models that nobody knows


def test_an_unknown_model_is_told_with_what_was_seen_and_what_exists(site: Site) -> None:
    site.framework("fakefw")
    site.adapter("padiff-fake", "fakefw")
    site.module("my_port", "import collections\nclass Net(collections.UserDict): pass")
    with pytest.raises(UnknownModel) as caught:
        plugins.adapter_for(use("my_port").Net())
    text = str(caught.value)
    assert "my_port.Net" in text
    assert "come from: my_port, collections" in text
    assert "fakefw (padiff-fake)" in text
    assert "\nHint: " in text


def test_a_known_framework_without_its_adapter_names_what_to_install(site: Site) -> None:
    net = type("Net", (), {"__module__": "mindspore.nn.cell"})
    with pytest.raises(UnknownModel, match=r"Adapters installed: none\.\nHint: pip install padiff-mindspore\."):
        plugins.adapter_for(net())
    net = type("Net", (), {"__module__": "flax.linen.module"})
    with pytest.raises(UnknownModel, match="no adapter of its own for flax"):
        plugins.adapter_for(net())


class Net:
    def forward(self) -> None: ...


@pytest.mark.parametrize(
    ("model", "seen", "hint"),
    [
        (Net, "got the class", "build an instance"),
        (functools.partial(Net), "got the partial", "call it"),
        (lambda: Net(), "got the function", "call it"),
        (Net().forward, "got the method", "pass the model itself: the Net"),
        (None, "got None", "return it"),
        ([Net()], "builtins.list", "one model"),
    ],
)
def test_what_is_no_instance_is_told_so(site: Site, model: object, seen: str, hint: str) -> None:
    with pytest.raises(UnknownModel) as caught:
        plugins.adapter_for(model)
    first, _, last = str(caught.value).partition("\nHint: ")
    assert seen in first
    assert hint in last


def test_a_class_is_not_taken_for_its_metaclass(site: Site) -> None:
    site.framework("fakefw", FRAMEWORK + "class Meta(type): pass\nclass Strict(metaclass=Meta): pass\n")
    site.adapter("padiff-fake", "fakefw")
    with pytest.raises(UnknownModel, match="build an instance"):
        plugins.adapter_for(use("fakefw").Strict)


# -- broken plugins

BROKEN = {
    "import": ("import no_such_package", "No module named 'no_such_package'"),
    "syntax": ("def (", "SyntaxError"),
    "exit": ("raise SystemExit(3)", "SystemExit"),
    "signature": (
        "import padiff\n@padiff.hookimpl\ndef padiff_adapters(model): return []",
        "declared in the hookimpl but can not be found in the hookspec",
    ),
    "unknown-hook": ("import padiff\n@padiff.hookimpl\ndef padiff_adapterz(): return []", "padiff_adapterz"),
    "no-hook": ("x = 1", "implements no hook"),
    "raising": ("import padiff\n@padiff.hookimpl\ndef padiff_adapters(): return [1 / 0]", "division by zero"),
    "lazily-raising": (
        "import padiff\n@padiff.hookimpl\ndef padiff_adapters():\n  yield 1 / 0",
        "division by zero",
    ),
    "wrong-type": ("import padiff\n@padiff.hookimpl\ndef padiff_adapters(): return ['torch']", "gave a str"),
    "other-version": (
        PLUGIN.format(name="n", roots=("n",), factory="a:b", before=(), api=99),
        "version 99 and this",
    ),
    "no-factory": (
        PLUGIN.format(name="n", roots=("n",), factory="a.b", before=(), api=1),
        "package.module:callable",
    ),
    "no-roots": (PLUGIN.format(name="n", roots=(), factory="a:b", before=(), api=1), "claims no package"),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_plugin_warns_and_the_others_live(site: Site, fault: str) -> None:
    site.framework("fakefw")
    site.adapter("a-good-one", "fakefw")
    text, said = BROKEN[fault]
    site.plugin("m-broken", text)
    site.framework("other")
    site.adapter("z-good-one", "other")
    with pytest.warns(PluginWarning) as caught:
        rows = plugins.installed()
    assert len(caught) == 1
    message = str(caught[0].message)
    assert re.search(r"\(m-broken 1\.0\) (is|are) left out: ", message)
    assert said in message
    assert "Hint: " in message
    assert sorted(row.state for row in rows) == [State.AVAILABLE, State.AVAILABLE, State.BROKEN]
    (broken,) = (row for row in rows if row.state is State.BROKEN)
    assert (broken.distribution, broken.version) == ("m-broken", "1.0")
    assert said in str(broken.why)
    for name in ("fakefw", "other"):
        assert plugins.adapter_for(use(name).Module()).name == name


def test_an_error_in_a_plugin_is_located(site: Site) -> None:
    site.plugin("m-broken", "import padiff\n\nraise ValueError('so there')")
    with pytest.warns(PluginWarning, match=r"raised ValueError: so there at .*m_broken_plugin\.py:3\."):
        plugins.installed()


def test_a_warning_comes_once(site: Site) -> None:
    site.plugin("m-broken", "1 / 0")
    with pytest.warns(PluginWarning):
        plugins.installed()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plugins.installed()
        plugins.adapters()


def test_a_warning_turned_into_an_error_loses_no_adapter(site: Site) -> None:
    site.plugin("m-broken", "1 / 0")
    site.framework("other")
    site.adapter("z-good-one", "other")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(PluginWarning):
            plugins.installed()
        assert plugins.adapter_for(use("other").Module()).name == "other"


def test_a_model_of_an_adapter_of_another_interface_says_so(site: Site) -> None:
    site.framework("fakefw")
    site.adapter("padiff-fake", "fakefw", api=99)
    model = use("fakefw").Module()
    with pytest.warns(PluginWarning), pytest.raises(AdapterError, match="padiff-core is older") as caught:
        plugins.adapter_for(model)
    assert "padiff-fake" in str(caught.value)


def test_an_unknown_model_is_told_of_what_was_left_out(site: Site) -> None:
    site.plugin("padiff-torch", "import no_such_package")
    net = type("Net", (), {"__module__": "torch.nn"})
    with pytest.warns(PluginWarning), pytest.raises(UnknownModel, match="no_such_package") as caught:
        plugins.adapter_for(net())
    assert str(caught.value).endswith("Hint: pip install --upgrade --force-reinstall padiff-torch.")


def test_two_adapters_on_one_package_are_an_error_that_names_both_when_it_is_used(site: Site) -> None:
    site.framework("fakefw")
    site.framework("other")
    site.adapter("padiff-fake", "fakefw")
    site.adapter("rival", "fakefw", roots=("fakefw", "other"))
    with pytest.warns(PluginWarning, match="2 adapters claim the package 'fakefw'"):
        rows = plugins.installed()
    assert [row.state for row in rows] == [State.CONFLICT, State.CONFLICT]
    assert "rival 1.0" in str(rows[0].why) or "padiff-fake 1.0" in str(rows[0].why)
    with pytest.raises(AdapterError, match=r"padiff-fake 1\.0") as caught:
        plugins.adapter_for(use("fakefw").Module())
    assert "rival 1.0" in str(caught.value)
    assert plugins.adapter_for(use("other").Module()).name == "fakefw"


# -- loading


def test_nothing_is_imported_before_it_is_used(site: Site) -> None:
    site.framework("fakefw")
    site.adapter("padiff-fake", "fakefw")
    assert states() == {"fakefw": State.AVAILABLE}
    assert not {"fakefw", "padiff_fake_adapter"} & sys.modules.keys()
    plugins.load(plugins.adapters()[0])
    assert states() == {"fakefw": State.LOADED}
    assert plugins.installed()[0].framework_version == "7.1"


def test_a_framework_that_is_not_there(site: Site) -> None:
    site.adapter("padiff-fake", "fakefw")
    row = plugins.installed()[0]
    assert (row.state, row.why) == (State.MISSING, "fakefw is not installed")
    with pytest.raises(
        MissingFramework, match=r"needs fakefw, which is not installed\.\nHint: install what provides 'fakefw'\."
    ) as e:
        plugins.load(plugins.adapters()[0])
    assert isinstance(e.value.__cause__, ModuleNotFoundError)
    site.framework("fakefw")
    importlib.invalidate_caches()
    assert plugins.load(plugins.adapters()[0]).name == "fakefw"
    assert states() == {"fakefw": State.LOADED}


def test_a_bare_folder_is_no_framework(site: Site) -> None:
    site.adapter("padiff-fake", "fakefw")
    site.folder.joinpath("fakefw").mkdir()
    assert states() == {"fakefw": State.MISSING}


def test_a_framework_that_does_not_import(site: Site) -> None:
    site.framework("fakefw", "raise ImportError('libfake.so: undefined symbol')")
    site.adapter("padiff-fake", "fakefw")
    with pytest.raises(MissingFramework, match=r"libfake\.so: undefined symbol at .*fakefw/__init__\.py:1"):
        plugins.load(plugins.adapters()[0])
    row = plugins.installed()[0]
    assert row.state is State.MISSING
    assert "undefined symbol" in str(row.why)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (ADAPTER + "1 / 0\n", r"raised ZeroDivisionError: division by zero at .*padiff_fake_adapter\.py:\d+"),
        (ADAPTER + "import fakefw.no_such\n", "No module named 'fakefw.no_such'"),
        (ADAPTER.replace("class Fake", "class Fak"), "has no attribute 'Fake'"),
        (ADAPTER + "Fake = dict\n", r"gave a builtins\.dict; expected a padiff\.Adapter"),
    ],
)
def test_a_broken_adapter_is_told_apart_from_a_missing_framework(site: Site, text: str, said: str) -> None:
    site.framework("fakefw")
    site.adapter("padiff-fake", "fakefw", text=text)
    with pytest.raises(AdapterError, match=said) as caught:
        plugins.adapter_for(use("fakefw").Module())
    assert not isinstance(caught.value, MissingFramework)
    row = plugins.installed()[0]
    assert row.state is State.BROKEN
    assert "fakefw" in str(row.why)


def test_a_framework_that_has_to_come_first_warns_when_it_does_not(site: Site) -> None:
    site.framework("fakefw")
    site.framework("other")
    site.adapter("padiff-fake", "fakefw", before=("other",))
    use("other")
    with pytest.warns(PluginWarning, match=r"other came before fakefw.*\nHint: import fakefw before other") as caught:
        plugins.load(plugins.adapters()[0])
    assert len(caught) == 1


def test_a_framework_that_came_first_does_not_warn(site: Site, recwarn: pytest.WarningsRecorder) -> None:
    site.framework("fakefw")
    site.framework("other")
    site.adapter("padiff-fake", "fakefw", before=("other",))
    use("fakefw")
    use("other")
    plugins.load(plugins.adapters()[0])
    assert not recwarn.list


def test_adapters_stand_in_the_order_in_which_they_must_load(site: Site) -> None:
    site.adapter("a-late", "other")
    site.adapter("z-early", "fakefw", before=("other",))
    assert [info.name for info in plugins.adapters()] == ["fakefw", "other"]


def test_extra_packages_of_an_adapter_do_not_stand_for_its_framework(site: Site) -> None:
    site.framework("zoo")
    site.adapter("padiff-fake", "fakefw", roots=("fakefw", "a_zoo", "zoo"))
    assert states() == {"fakefw": State.MISSING}


# -- what is really installed


def test_the_installed_adapters_are_found_without_their_frameworks() -> None:
    code = """
        import sys
        from padiff import plugins
        print(*(f"{row.name}:{row.distribution}" for row in plugins.installed()))
        print(*({"torch", "paddle", "mindspore"} & sys.modules.keys()))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True, timeout=60
    )
    found, imported = done.stdout.splitlines()
    assert {"torch:padiff-torch", "paddle:padiff-paddle"} <= set(found.split())
    assert imported == ""
