"""Announce the MindSpore adapter to padiff; this must not import MindSpore."""

from __future__ import annotations

from padiff.adapter import AdapterInfo, hookimpl

_ROOTS = ("mindspore", "mindcv", "mindformers", "mindnlp", "mindocr", "mindone", "mindyolo")


@hookimpl
def padiff_adapters() -> list[AdapterInfo]:
    """Return what is known of the MindSpore adapter before MindSpore is imported.

    MindSpore and Paddle ship different builds of one oneDNN library, of which a process loads the first; only
    MindSpore's serves both. Threads that compute operations later wait for each other by turning, which takes several
    times the CPU of the diff; MindSpore reads the variable that lets each end where it is called once, at the first.
    """
    return [
        AdapterInfo(
            "mindspore",
            roots=_ROOTS,
            factory="padiff_mindspore.adapter:MindSporeAdapter",
            load_before={"paddle"},
            kinds="padiff_mindspore.kinds:TABLE",
            environment={"MS_DEV_LAUNCH_BLOCKING": "1"},
        )
    ]
