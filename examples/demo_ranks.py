"""Compare jobs of two ranks each: DeepSpeed's ZeRO-1 with Megatron's tensor parallelism, then with a fault planted.

Run ``make demo-ranks``, or this file in an environment that has DeepSpeed and megatron-core. Both train Megatron's GPT
for ten steps, on the CPU: DeepSpeed on two ranks that have half of each batch, Megatron on two ranks that have half of
each matrix. Each rank records by itself; padiff puts together what they hold, and is told nothing about either layout.

The jobs are the same training. In a third one a linear layer forgets its all-reduce, and a rank of a fourth holds on to
a norm's weight. The exit status is 0 where padiff says exactly that, and 1 where it does not.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import traceback
import warnings
import zlib
from pathlib import Path

os.environ |= {"DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1"}
warnings.simplefilter("ignore")

STEPS, RANKS, BATCH, LENGTH, TOKENS = 10, 2, 4, 8, 64
FORGETFUL, STALE = "decoder.layers.1.mlp.linear_fc2", "decoder.layers.0.input_layernorm"


def gpt(split, rank):
    """Return Megatron's GPT, each weight the shard of one that its name seeds."""
    import torch
    from megatron.core import parallel_state
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.models.gpt.gpt_model import GPTModel
    from megatron.core.tensor_parallel import random
    from megatron.core.transformer.transformer_config import TransformerConfig

    torch.cuda.current_device = lambda: "cpu"  # Megatron asks for one
    random.CudaRNGStatesTracker.fork = lambda *_, **__: contextlib.nullcontext()
    parallel_state.initialize_model_parallel(split, 1)
    off = ["bias_activation_fusion", "masked_softmax_fusion", "bias_dropout_fusion", "persist_layer_norm"]
    off += ["gradient_accumulation_fusion", "apply_rope_fusion"]
    sizes = {"num_layers": 2, "hidden_size": 32, "num_attention_heads": 4, "tensor_model_parallel_size": split}
    none = {"hidden_dropout": 0.0, "attention_dropout": 0.0, "use_cpu_initialization": True}
    config = TransformerConfig(**sizes, **none, **dict.fromkeys(off, False))
    spec = get_gpt_layer_local_spec(normalization="LayerNorm")
    about = {"vocab_size": TOKENS, "max_sequence_length": LENGTH, "share_embeddings_and_output_weights": False}
    model = GPTModel(config, spec, **about, parallel_output=True)
    for name, parameter in model.named_parameters():
        dim = parameter.partition_dim if getattr(parameter, "tensor_model_parallel", False) else None
        shape = [size * (split if axis == dim else 1) for axis, size in enumerate(parameter.shape)]
        values = torch.randn(shape, generator=torch.Generator().manual_seed(zlib.crc32(name.encode()))) * 0.1
        values += "layernorm.weight" in name
        parameter.data.copy_(values if dim is None else values.chunk(split, dim)[rank])
    return model


def batch(step, part=0, parts=1):
    """Return a step's tokens, places, mask and labels, as far as they are a rank's."""
    import torch

    tokens, labels = torch.randint(0, TOKENS, (2, BATCH, LENGTH), generator=torch.Generator().manual_seed(step))
    places = torch.arange(LENGTH)[None].repeat(BATCH // parts, 1)
    mask = torch.triu(torch.ones(1, 1, LENGTH, LENGTH, dtype=torch.bool), 1)
    return tokens.chunk(parts)[part], places, mask, labels.chunk(parts)[part]


def deepspeed_job(rank, folder):
    """Train with DeepSpeed: whole matrices, half of each batch."""
    import deepspeed
    import torch

    import padiff

    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # else it compiles for a minute
    model = gpt(1, 0)
    config = {"train_micro_batch_size_per_gpu": BATCH // RANKS, "gradient_clipping": 0.0}
    config |= {"zero_optimization": {"stage": 1}, "zero_allow_untested_optimizer": True}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    engine = deepspeed.initialize(model=model, optimizer=optimizer, config=config)[0]
    with padiff.record(engine, folder) as recorder:
        for step in range(STEPS):
            tokens, places, mask, labels = batch(step, rank, RANKS)
            loss = engine(tokens, places, mask, labels=labels).mean()
            engine.backward(loss)
            engine.step()
            recorder.step(loss)


def megatron_job(rank, folder, fault=None):
    """Train with Megatron: whole batches, half of each matrix."""
    import torch

    import padiff

    model = gpt(RANKS, rank)
    if fault is not None:
        fault(model, rank)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with padiff.record(model, folder) as recorder:
        for step in range(STEPS):
            tokens, places, mask, labels = batch(step)
            loss = model(tokens, places, mask, labels=labels).mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            recorder.step(loss)


def forgetful(model, _):
    """Let a row-parallel linear layer give each rank's part of the sum."""
    from megatron.core.tensor_parallel import layers

    linear, reduce = model.get_submodule(FORGETFUL), layers.reduce_from_tensor_model_parallel_region

    def forward(x):
        layers.reduce_from_tensor_model_parallel_region = lambda part, group=None: part
        try:
            return type(linear).forward(linear, x)
        finally:
            layers.reduce_from_tensor_model_parallel_region = reduce

    linear.forward = forward


def stale(model, rank):
    """Let rank 1 hold another weight of a norm than rank 0."""
    if rank == 1:
        model.get_submodule(STALE).weight.data *= 1.1


def run(job, folder, **settings):
    """Run a job to its end, a process for each rank, which gloo joins."""
    import torch.distributed as dist

    children = []
    for rank in range(RANKS):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                store = dist.FileStore(f"{folder}.store", RANKS)
                os.environ |= {"LOCAL_RANK": str(rank), "RANK": str(rank), "WORLD_SIZE": str(RANKS)}
                dist.init_process_group("gloo", rank=rank, world_size=RANKS, store=store)
                job(rank, folder, **settings)
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(code)
        children.append(child)
    codes = [os.waitpid(child, 0)[1] for child in children]
    if any(codes):
        msg = f"a rank of {folder.name} failed"
        raise SystemExit(msg)
    return folder


def main():
    """Run the jobs, compare them, and return 0 where padiff says what is known of them."""
    print("Importing torch, DeepSpeed and Megatron ...", flush=True)
    import deepspeed  # noqa: F401
    import megatron.core.models.gpt.gpt_model  # noqa: F401

    import padiff

    with tempfile.TemporaryDirectory() as place:
        base = Path(place)
        reference = run(deepspeed_job, base / "deepspeed")

        def compared(name, title, **settings):
            run(megatron_job, base / name, **settings)
            print(f"\n=== DeepSpeed ZeRO-1 on two ranks x Megatron TP=2{title}, {STEPS} steps\n")
            report = padiff.compare(reference, base / name)
            print(report, flush=True)
            return report

        def names(report, path, cause, ranks):
            told = [(one.candidate.path, one.cause and one.cause.name) for one in report.sources]
            return told == [(path, cause)] and report.sources[0].cause.parameters["ranks"] == ranks

        right = compared("megatron", "")
        forgot = compared("forgetful", ", an all-reduce forgotten", fault=forgetful)
        kept = compared("stale", ", a weight out of step", fault=stale)
    checks = {
        "DeepSpeed ZeRO-1 and Megatron TP=2 train alike": right.aligned and not right.coverage.missing,
        f"the all-reduce is missing behind {FORGETFUL}": names(forgot, FORGETFUL, "missing_all_reduce", [0, 1]),
        f"rank 1 holds another weight of {STALE}": names(kept, STALE, "out_of_step", [1]),
    }
    print("\n=== what is known of these jobs, and whether padiff says so\n")
    for said, found in checks.items():
        print(f"{'yes' if found else 'NO '}  {said}")
    return 0 if all(checks.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
