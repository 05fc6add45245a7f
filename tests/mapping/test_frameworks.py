"""The worked example of document 004 from PyTorch to Paddle."""

from __future__ import annotations

from collections.abc import Callable

import padiff
from padiff.alignment import written_mapping
from padiff.plugins import adapter_for
from padiff.recording import describe

from .gpt import DOCUMENT, PAIRS, left, right, tokens
from .kits import paddle_kit, torch_kit

Write = Callable[[str], str]


def test_the_documents_example_from_torch_to_paddle(write: Write) -> None:
    ours, theirs = torch_kit(), paddle_kit()

    def compared(mapping: str | None) -> padiff.Report:
        models = left(ours), right(theirs)
        report = padiff.diff(*models, tokens(), mapping=mapping)
        assert report.aligned, str(report)
        assert {one.reference: one.candidate for one in report.mapping.modules} == PAIRS
        texts.append(written_mapping(report.mapping, *(describe(adapter_for(m).wrap(m)) for m in models)))
        return report

    texts: list[str] = []
    reports = [compared(None), compared(write(DOCUMENT))]
    assert texts[0] == texts[1]
    links = [{(one.reference, one.candidate, one.layout) for one in report.mapping.parameters} for report in reports]
    assert links[0] == links[1]
    faulty = padiff.diff(left(ours), right(theirs, lambda x: x * 1.5), tokens(), mapping=write(texts[0]))
    assert [f.candidate.path for f in faulty.sources] == ["model.module.decoder.layers.1.self_attention"], str(faulty)
    assert {one.reference: one.candidate for one in faulty.mapping.modules} == PAIRS
