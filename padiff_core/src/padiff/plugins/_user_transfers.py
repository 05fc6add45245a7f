"""Keep the special transfers that the user registers; they come before those of plugins."""

from __future__ import annotations

from padiff.adapter import Hook, SpecialTransfer
from padiff.errors import InputError
from padiff.plugins._hooks import why_unusable
from padiff.plugins._lookup import contributions
from padiff.plugins._registry import Row

_HOOK = "padiff_transfers"
_REGISTERED: dict[str, Row] = {}


def register_transfer(transfer: SpecialTransfer) -> Hook:
    """Let padiff.diff copy parameters by a special transfer, from now on and before any plugin's.

    One of the same name takes the place of the former, so that a cell of a notebook can run twice. Close what is
    returned, or use it as a context manager, to take the transfer back. Raises `InputError` for anything else.
    """
    if not isinstance(transfer, SpecialTransfer) or why_unusable(transfer):
        kind = type(transfer)
        seen = why_unusable(transfer) if isinstance(transfer, SpecialTransfer) else f"it is a {kind.__qualname__}"
        msg = f"this transfer cannot be registered: {seen}.\n"
        msg += "Hint: padiff.register_transfer(padiff.SpecialTransfer(reference_class, candidate_class, function))."
        raise InputError(msg)
    row = Row(transfer.name, _home(transfer), None, _HOOK, transfer, given=True)
    _REGISTERED.pop(transfer.name, None)
    _REGISTERED[transfer.name] = row

    def take_back() -> None:
        if _REGISTERED.get(transfer.name) is row:
            del _REGISTERED[transfer.name]

    return Hook(take_back)


def _home(transfer: SpecialTransfer) -> str:
    code = getattr(transfer.function, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else repr(transfer.function)


def transfers() -> list[Row]:
    """Return the special transfers: the user's, the last registered first, then those of plugins."""
    return [*reversed(_REGISTERED.values()), *contributions(_HOOK)]
