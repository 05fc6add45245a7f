"""Measure what ``padiff.diff(..., operations=True)`` costs beside a default one.

Run ``python benchmarks/operations.py`` (``--repeats``): Hugging Face's Llama x PaddleNLP's, whose attention is written
with functions and operators, as such models are. One process builds the pair, calls both once to warm up, and then
takes turns; each figure is the median of CPU seconds of all threads. That a default diff touches no function of a
framework is a test (``tests/diff/test_operations.py``), not a figure.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def pair() -> tuple[Any, Any, dict[str, Any], dict[str, Any]]:
    """Return both models, in evaluation, and the inputs of each."""
    import numpy as np
    import torch  # noqa: F401  before the libraries on it
    from paddlenlp import transformers as paddle_models
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes: dict[str, Any] = {
        "hidden_size": 256,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "intermediate_size": 688,
        "vocab_size": 1000,
    }
    ours = LlamaForCausalLM(LlamaConfig(**sizes, attn_implementation="eager", use_cache=False)).eval()
    theirs = paddle_models.LlamaForCausalLM(paddle_models.LlamaConfig(**sizes, use_cache=False))
    theirs.eval()
    ids = np.random.default_rng(0).integers(1, 1000, (4, 128))
    return ours, theirs, {"input_ids": ids}, {"input_ids": ids}


def main() -> int:
    """Print the figures."""
    import padiff

    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeats", type=int, default=3, help="counted runs of each (default 3)")
    options = parser.parse_args()
    ours, theirs, inputs, other_inputs = pair()
    spent: dict[bool, list[float]] = {False: [], True: []}
    counts = {}
    for _ in range(options.repeats + 1):
        for operations, seconds in spent.items():
            start = time.process_time()
            report = padiff.diff(ours, theirs, inputs, candidate_inputs=other_inputs, operations=operations)
            seconds.append(time.process_time() - start)
            counts[operations] = (
                f"{'aligned' if report.aligned else 'not aligned'}, {sum(report.counts.values())} calls"
            )
    medians = {operations: statistics.median(seconds[1:]) for operations, seconds in spent.items()}
    print("Llama 4x256, 4x128 tokens: transformers x paddlenlp, CPU seconds of one diff")
    print(f"  modules alone    {medians[False]:6.2f}  ({counts[False]})")
    print(f"  with operations  {medians[True]:6.2f}  ({counts[True]})")
    print(f"  ratio            {medians[True] / medians[False]:6.2f}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
