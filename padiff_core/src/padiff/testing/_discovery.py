"""Specify how an adapter is found, and what it says of itself."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import ClassVar

import numpy as np
import pytest

from padiff.adapter import API_VERSION, CAPABILITIES
from padiff.errors import UnknownModel, UnwatchableModel
from padiff.plugins import adapter_for, adapter_of_tensor
from padiff.testing._harness import FACTORIES, Harness, needs, randoms
from padiff.testing._models import one


class DiscoveryTests(Harness):
    """Find the adapter of a model without importing a framework."""

    feature: ClassVar[str] = "detection"

    def test_the_plugin_imports_nothing_of_the_framework(self) -> None:
        """Asking every plugin what it serves imports none of the packages that this adapter claims."""
        code = (
            "import sys; from padiff.plugins import adapters; "
            f"assert {self.name!r} in [info.name for info in adapters()]; "
            f"print(*sorted({set(self.info.roots)!r} & set(sys.modules)))"
        )
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", code], env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"the plugin does not load alone, or warns:\n{done.stderr}"
        assert not done.stdout.strip(), (
            f"the plugin's module imports {done.stdout.strip()}: let it import padiff alone, and name the adapter in "
            "AdapterInfo.factory as text"
        )

    def test_the_adapter_was_written_for_this_interface(self) -> None:
        """The info carries the interface's version, and the name is the adapter's own."""
        assert self.info.api == API_VERSION
        assert self.adapter.name == self.info.name, "Adapter.name and AdapterInfo.name are the same word"

    def test_a_model_is_found_through_its_base_classes(self) -> None:
        """A user's model, in whatever module it is defined, is this adapter's."""
        for native in (self.linear(2, 3), self.module(one, first=self.linear(2, 2))):
            found = adapter_for(native)
            assert type(found) is type(self.adapter), (
                f"{type(native).__mro__} leads to {found.name!r}: AdapterInfo.roots must name the top-level package of "
                "one of these classes"
            )

    def test_a_tensor_is_found_and_an_array_is_not(self) -> None:
        """Tensors given as inputs are recognised by their class; numpy arrays are nobody's, also where tensors are."""
        native = self.native(randoms(2))
        assert self.adapter.is_tensor(native)
        found, others = adapter_of_tensor(native), [1.0, None, "text", self.linear(2, 2)]
        if isinstance(native, np.ndarray):
            assert found is None, f"{found.name!r} claims numpy arrays, which are inputs of every framework"
        else:
            assert found is not None, f"{type(native).__mro__} names no package of AdapterInfo.roots"
            assert found.name == self.name
            others.append(randoms(2))
        for other in others:
            assert not self.adapter.is_tensor(other), f"is_tensor says yes to {type(other).__qualname__}"

    def test_what_is_no_model_is_refused(self) -> None:
        """A function or a tensor is no model: wrap raises UnwatchableModel, diff UnknownModel."""
        for other in (lambda x: x, randoms(2), self.native(randoms(2))):
            with pytest.raises(UnwatchableModel, match="Hint"):
                self.adapter.wrap(other)
        with pytest.raises(UnknownModel, match="Hint"):
            adapter_for(lambda x: x)

    @needs("compilation")
    def test_compiled_models_are_refused(self) -> None:
        """A model on which hooks would be ignored is refused with a hint what to pass instead, inside another too."""
        for build in (self.compiled, lambda model: self.module(one, first=self.compiled(model))):
            with pytest.raises(UnwatchableModel, match="Hint"):
                self.adapter.wrap(build(self.module(one, first=self.linear(2, 2))))

    def test_the_environment_names_the_version(self) -> None:
        """A report's reader is told, as text, the framework's version and what else changes a float."""
        found = self.adapter.environment()
        assert found.get(self.name), f"environment() has no {self.name!r}: put the framework's version there"
        wrong = {key: value for key, value in found.items() if not isinstance(value, str)}
        assert not wrong, f"environment() gives {wrong}; expected text, for JSON and for people"

    def test_capabilities_are_known_words_and_each_can_be_tested(self) -> None:
        """What the adapter declares is listed in CAPABILITIES, and the test class brings what testing it takes."""
        unknown = self.adapter.capabilities - set(CAPABILITIES)
        assert not unknown, f"capabilities names {sorted(unknown)}; known are {', '.join(CAPABILITIES)}"
        for capability, factory in FACTORIES.items():
            given = getattr(type(self), factory) is not getattr(Harness, factory)
            offered = capability in self.adapter.capabilities
            assert given or not offered, f"the adapter offers {capability!r}: write {factory}() in the test class"
            assert offered or not given, (
                f"the test class has {factory}(), and the adapter does not offer {capability!r}: add it to capabilities"
            )
        if self.accelerator is not None:
            assert "devices" in self.adapter.capabilities, "an accelerator is given: add 'devices' to capabilities"
