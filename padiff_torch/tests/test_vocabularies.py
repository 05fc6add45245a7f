"""Compare one GPT-2 whose vocabulary one side pads with rows that no token names, the other not, or otherwise."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import padiff

sys.path.insert(0, str(Path(__file__).parent))
import stack_jobs


@pytest.fixture(scope="module")
def jobs(ran: Callable[..., Path]) -> Path:
    return ran("vocabulary_jobs.py")


@pytest.mark.parametrize(
    ("one", "other", "side", "rows"),
    [
        ("one/hand", "one/padded", "candidate", (56, 50)),
        ("one/hand", "two/padded", "candidate", (64, 50)),
        ("two/hand", "two/padded", "candidate", (64, 50)),
        ("two/padded", "back/hand", "reference", (64, 50)),
        ("one/padded", "two/otherwise", "candidate", (64, 56)),
        ("one/apart", "two/apart", "candidate", (64, 50)),
    ],
)
def test_rows_that_no_token_names_are_no_difference(
    jobs: Path, one: str, other: str, side: str, rows: tuple[int, int]
) -> None:
    """Weights come from the other layout each time: the real rows; a layer of its own for logits is cut as well."""
    report = padiff.compare(jobs / one, jobs / other)
    assert report.aligned, report
    assert report.forward_only is None
    (note,) = [note for note in report.notes if note.kind == "padded_rows"]
    assert (note.data["side"], note.data["count"], note.data["real"]) == (side, *rows)
    compared = {call.reference.path for call in report.calls if call.reference and call.candidate}
    assert compared & {"transformer.wte", "embedding.word_embeddings"}, report
    assert compared & {"lm_head", "output_layer"}, report


def test_padding_that_counts_in_the_loss_is_named_with_the_rank_that_holds_it(jobs: Path) -> None:
    report = padiff.compare(jobs / "one/hand", jobs / "two/in-loss")
    (source,) = report.sources
    assert (source.what.kind, source.candidate.path, source.candidate.ranks) == ("output_gradient", "", (1,)), report
    assert source.cause.name == "padding_in_loss"
    assert {"real": 50, "rows": 64, "ranks": [1]}.items() <= source.cause.parameters.items()


def test_a_row_that_a_token_names_is_none_of_the_padding(jobs: Path) -> None:
    """In its last step, of which the first shows none: nothing is cut off there."""
    report = padiff.compare(jobs / "one/hand", jobs / "two/named")
    assert not report.aligned
    first = report.sources[0]
    assert (first.step, first.what.kind, first.cause.parameters["name"]) == (1, "input", "input_ids"), report


def test_transfer_tells_how_many_rows_it_copied(jobs: Path) -> None:
    done = padiff.transfer(jobs / "two/padded", stack_jobs.gpt2(50))
    assert done.padded == {"transformer.wte.weight": 50}
    assert not done.unmatched_candidate
