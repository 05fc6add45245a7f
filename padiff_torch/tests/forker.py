"""Run scripts of jobs, each in a fork of this process, which has imported everything once, and so have its ranks.

Each line of the input is a script and its arguments, as JSON; each line of the output is its exit status.
"""

from __future__ import annotations

import gc
import json
import os
import runpy
import sys
import tempfile
import traceback
from pathlib import Path

os.environ |= {"DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1"}
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # what DeepSpeed logs is no answer

import deepspeed  # noqa: E402, F401
import megatron.core.models.gpt.gpt_layer_specs  # noqa: E402
import megatron.core.models.gpt.gpt_model  # noqa: E402
import megatron.core.pipeline_parallel  # noqa: E402, F401
import torch  # noqa: E402
import torch._dynamo.trace_rules  # noqa: E402
import transformers.models.gpt2.modeling_gpt2  # noqa: E402
import transformers.models.mixtral.modeling_mixtral  # noqa: E402, F401

import padiff  # noqa: E402

torch._dynamo.trace_rules.get_torch_obj_rule_map()  # half a second in each process whose optimizer steps
line = torch.nn.Linear(1, 1)
with tempfile.TemporaryDirectory() as folder, padiff.record(line, Path(folder, "warm")) as recorder:
    line(torch.ones(1, 1)).sum().backward()
    recorder.step()
gc.freeze()
for line in sys.stdin:
    child = os.fork()
    if child == 0:
        code = 1
        try:
            sys.argv = json.loads(line)
            runpy.run_path(sys.argv[0], run_name="__main__")
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    print(os.waitpid(child, 0)[1], file=answers, flush=True)
