"""Join the rooms into the suite that an adapter's tests inherit."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite(
    *(
        f"padiff.testing.{room}"
        for room in (
            "_answers",
            "_backward",
            "_calls",
            "_discovery",
            "_harness",
            "_kinds",
            "_operations",
            "_parameters",
            "_refusals",
            "_state",
            "_values",
        )
    )
)

from padiff.testing._answers import AnswerTests  # noqa: E402  after what rewrites its asserts
from padiff.testing._backward import GradientTests  # noqa: E402
from padiff.testing._calls import CallTests  # noqa: E402
from padiff.testing._discovery import DiscoveryTests  # noqa: E402
from padiff.testing._kinds import KindTests  # noqa: E402
from padiff.testing._operations import OperationTests  # noqa: E402
from padiff.testing._parameters import ParameterTests  # noqa: E402
from padiff.testing._refusals import RefusalTests  # noqa: E402
from padiff.testing._state import StateTests  # noqa: E402
from padiff.testing._values import ValueTests  # noqa: E402


class AdapterTests(
    DiscoveryTests,
    ValueTests,
    CallTests,
    GradientTests,
    ParameterTests,
    StateTests,
    KindTests,
    OperationTests,
    RefusalTests,
    AnswerTests,
):
    """Specify the adapter interface: inherit this, give ``name``, `linear` and `module`, and run pytest.

    Each test's docstring is one sentence of the specification. A test of a capability is collected where the adapter
    offers it (`padiff.Adapter.capabilities`), and then takes the factory that is named for it in `Harness`.
    """
