"""Run scripts of jobs, each in a fork of this process, which has imported everything once.

Each line of the input is a script and its arguments, as JSON; each line of the output is its exit status.
"""

from __future__ import annotations

import gc
import json
import os
import runpy
import sys
import traceback

os.environ |= {"DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1"}
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # what DeepSpeed logs is no answer

import deepspeed  # noqa: E402, F401
import megatron.core.models.gpt.gpt_model  # noqa: E402
import megatron.core.pipeline_parallel  # noqa: E402, F401
import transformers.models.gpt2.modeling_gpt2  # noqa: E402
import transformers.models.mixtral.modeling_mixtral  # noqa: E402, F401

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
