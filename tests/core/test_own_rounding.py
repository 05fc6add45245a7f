"""What a side's tables round, and what that may not explain."""

from typing import Any, cast

import pytest

from padiff.judging._forced._own_rounding import Narrow
from padiff.judging._forced._question import Question
from padiff.numerics import GROSS


@pytest.mark.parametrize("eps", [1.2e-7, 7.8e-3])
def test_no_rounding_of_a_table_explains_a_gross_difference(eps: float) -> None:
    asked: list[bool] = []

    def runs(*_: Any, backward: bool) -> Any:
        asked.append(backward)
        raise LookupError

    narrow = Narrow(runs, cast(Any, None))
    asked_for = Question(cast(Any, None), cast(Any, None), cast(Any, None), backward=False, eps=eps)
    assert narrow.explains(asked_for, 1.01 * GROSS(eps)) is None
    assert not asked
    with pytest.raises(LookupError):
        narrow.explains(asked_for, 0.99 * GROSS(eps))
