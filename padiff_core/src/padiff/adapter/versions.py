"""Look for what the installed version of a framework offers, instead of concluding it from the version's number."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping
from functools import reduce
from typing import Any

import attrs

from padiff.adapter._info import CAPABILITIES
from padiff.errors import AdapterError


@attrs.frozen
class Offer:
    """Something that not every version of a framework has."""

    path: str
    """Where it stands below the framework's package."""
    without: str = ""
    """What padiff does where it is not there, for the reader of a report; nothing where that makes no difference."""
    capability: str | None = None
    """What the adapter cannot offer then."""
    reason: str = ""
    """Of a private one: why no public one serves."""
    parameter: str | None = attrs.field(default=None, kw_only=True)
    """What the function there must take: not every version's does."""


class Offers:
    """What one version of a framework has, of what not every version has."""

    def __init__(
        self, framework: str, home: Any, offers: Mapping[str, Offer], needed: Mapping[str, str | None], oldest: str
    ) -> None:
        self.framework = framework
        self.home = home
        self.offers = offers
        self.needed = needed
        """Something below the package -> what it must take, if anything: without it padiff cannot work at all."""
        self.oldest = oldest
        self.held = {name: _found(home, offer.path, offer.parameter) for name, offer in offers.items()}
        """Name of an offer -> what stands there, None where nothing does."""

    @property
    def version(self) -> str:
        """Return its version."""
        return str(self.home.__version__)

    def check(self) -> None:
        """Raise `AdapterError` where padiff cannot work with it at all."""
        for path, parameter in self.needed.items():
            if _found(self.home, path, parameter) is None:
                what = f"{self.framework}.{path}" if parameter is None else f"{parameter} in {self.framework}.{path}"
                msg = f"{self.framework} {self.version} has no {what}, which padiff needs.\n"
                msg += f"Hint: padiff works with {self.framework} {self.oldest} and newer."
                raise AdapterError(msg)

    def missing(self) -> list[Offer]:
        """Return what it does not offer."""
        return [self.offers[name] for name, held in self.held.items() if held is None]

    def lost(self) -> set[str]:
        """Return the capabilities that go with that."""
        return {offer.capability for offer in self.missing() if offer.capability is not None}

    def capabilities(self) -> frozenset[str]:
        """Return what an adapter offers that would offer all, were nothing missing."""
        return frozenset(CAPABILITIES) - self.lost()

    def files(self, *paths: str) -> tuple[str, ...]:
        """Return the prefixes of the package's files whose paths below it begin so; of an empty one, of all."""
        folder = os.path.dirname(os.path.abspath(self.home.__file__))
        return tuple(os.path.join(folder, *path.split("/")) for path in paths)

    def notes(self) -> dict[str, str]:
        """Return what a report says of that, beside the framework's version."""
        without = [offer.without for offer in self.missing() if offer.without]
        return {"this version": "; ".join(without)} if without else {}


def _found(home: Any, path: str, parameter: str | None) -> Any:
    found = reduce(lambda one, name: getattr(one, name, None), path.split("."), home)
    if found is None or parameter is None:
        return found
    return found if parameter in inspect.signature(found).parameters else None
