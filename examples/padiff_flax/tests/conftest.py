"""Compile fast, and nothing twice: compiling small functions is most of the time that these tests take."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator

# XLA's newer emitters of loops take twice as long to compile one. It reads this once a process, so that the README's
# tests have the older ones too: what these print is the same with both.
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_use_fusion_emitters=false"

import jax
import pytest

AS_USERS_HAVE_IT = ("test_readme",)


def pytest_configure(config: pytest.Config) -> None:
    """Keep what was compiled: the same loop of a recurrent layer is traced anew in each run of a model."""
    if config.cache is not None:
        jax.config.update("jax_compilation_cache_dir", str(config.cache.mkdir("jax")))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    gc.set_threshold(20_000, 10, 10**6)  # else the garbage collector goes through all that was imported every few tests
    jax.config.update("jax_disable_most_optimizations", True)  # the suite's examples are built at collection


@pytest.fixture(scope="module", autouse=True)
def _compiled_fast(request: pytest.FixtureRequest) -> Iterator[None]:
    """Spare XLA's optimizations, but for the README, whose figures users see."""
    jax.config.update("jax_disable_most_optimizations", request.path.stem not in AS_USERS_HAVE_IT)
    yield
    jax.config.update("jax_disable_most_optimizations", True)
