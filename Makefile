# Everything runs in .venv, made here from Python and make alone. `make help` lists the targets.

PYTHON ?= $(shell command -v python3.11 || command -v python3 || echo python3.11)
VENV := .venv
BIN := $(VENV)/bin
# The environment's folder, then what pip would be told.
INSTALL := $(BIN)/python requirements/install.py

# An environment of MindSpore alone: what padiff.remote is for.
APART := .venv-mindspore
PACKAGES := -e ./padiff_core -e ./padiff_torch -e ./padiff_paddle -e ./padiff_mindspore
PYPROJECTS := padiff_core/pyproject.toml padiff_torch/pyproject.toml padiff_paddle/pyproject.toml \
  padiff_mindspore/pyproject.toml

# An environment of JAX and Flax, with the numpy that they need and MindSpore breaks on; padiff is tested with both.
FLAX := .venv-flax

# An environment of what trains on many ranks: DeepSpeed, which asks for a torch to be installed, and Megatron.
RANKS := .venv-ranks

# An environment of the oldest versions that padiff declares. A few tests run there: of hooks and gradients, where
# versions differ, of faults, and of the README's first example.
OLDEST := .venv-oldest
OLDEST_TESTS := tests/versions/check_first_use.py tests/pairs/test_faults.py tests/adapters/test_paddle_adapter.py \
  tests/adapters/test_mindspore_adapter.py \
  -k "first_use or convnet-bn_eps or convnet-groups or hook or keyword or recompute or view or backward"

# Frameworks whose tests must run: a missing one is an error, never a skip.
export PADIFF_REQUIRE ?= torch,paddle,mindspore
# Nothing here may load from a hub.
export HF_HUB_OFFLINE := 1
export TRANSFORMERS_OFFLINE := 1
export HF_DATASETS_OFFLINE := 1

# The tests start hundreds of short processes: each would compile padiff anew.
unexport PYTHONDONTWRITEBYTECODE

PYTEST_ARGS ?=
# Test files go to as many processes as there are cores, up to four: each imports three frameworks. In their order, that
# of the folders: by the number of their tests, few slow ones would come last, and one core wait for another.
SPREAD := -n auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder

.DEFAULT_GOAL := help
.PHONY: help demo demo-ranks test test-main test-flax test-ranks test-oldest lint versions bench clean

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

demo: $(VENV)/demo.stamp  ## compare real models of both frameworks, installing what that needs
	$(BIN)/python examples/demo.py

demo-ranks: $(RANKS)/test.stamp  ## compare DeepSpeed's ranks with Megatron's, installing what that needs
	$(RANKS)/bin/python examples/demo_ranks.py

test: test-main test-flax test-ranks test-oldest  ## lint, then the whole test suite; with --jobs 2 tests run beside installs

test-main: lint $(APART)/test.stamp
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest $(SPREAD) $(PYTEST_ARGS)

# One process each, beside those of the main tests: more would load the frameworks again, for cores that are not there.
test-flax: $(FLAX)/test.stamp
	cd examples/padiff_flax && OMP_NUM_THREADS=1 ../../$(FLAX)/bin/python -m pytest

test-ranks: $(RANKS)/test.stamp
	cd padiff_torch && OMP_NUM_THREADS=1 ../$(RANKS)/bin/python -m pytest

test-oldest: $(OLDEST)/test.stamp
	OMP_NUM_THREADS=1 $(OLDEST)/bin/python -m pytest $(OLDEST_TESTS)

lint: $(VENV)/test.stamp  ## ruff, mypy and the import contracts
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo --no-cache

versions: $(VENV)/test.stamp  ## the oldest and newest versions of each framework, each in an environment of its own
	$(BIN)/python -m tests.versions

bench: $(VENV)/test.stamp  ## the figures of docs/benchmarks.md
	$(BIN)/python benchmarks/compare.py
	$(BIN)/python benchmarks/cost.py
	$(BIN)/python benchmarks/depth.py
	$(BIN)/python benchmarks/isolation.py
	$(BIN)/python benchmarks/libraries.py --mutants 20
	$(BIN)/python benchmarks/libraries.py --library paddle.vision --mutants 8
	$(BIN)/python benchmarks/libraries.py --library written --mutants 20
	$(BIN)/python benchmarks/losses.py
	$(BIN)/python benchmarks/operations.py
	$(BIN)/python benchmarks/ranks.py
	$(BIN)/python benchmarks/runs.py
	$(BIN)/python benchmarks/sketches.py
	$(BIN)/python benchmarks/store.py
	$(BIN)/python benchmarks/versus.py

clean:  ## remove caches and build outputs, keep .venv
	rm -rf build dist padiff_*/build padiff_*/dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find padiff_* tests examples benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp says that an install is complete, so that a second run starts at once.

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 12))' || { \
	  echo "padiff's pinned versions install on Python 3.11 or 3.12, and $(PYTHON) is `$(PYTHON) -V 2>&1`." >&2; \
	  echo "Hint: install Python 3.11 and name it: make PYTHON=path/to/python3.11 $(MAKECMDGOALS)" >&2; \
	  exit 1; }
	$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt uv || echo "No uv: pip installs all."

$(VENV)/demo.stamp: $(PYPROJECTS) constraints.txt requirements/demo.txt requirements/demo-nodeps.txt | $(VENV)/bin/python
	@echo "Installing both frameworks and padiff into $(VENV): a minute or more."
	$(INSTALL) $(VENV) -c constraints.txt -r requirements/demo.txt $(PACKAGES)
	$(INSTALL) $(VENV) -c constraints.txt --no-deps -r requirements/demo-nodeps.txt
	@touch $@

$(VENV)/test.stamp: $(VENV)/demo.stamp requirements/test.txt requirements/test-nodeps.txt requirements/dev.txt
	@echo "Installing the test libraries and tools into $(VENV): a minute or more."
	$(INSTALL) $(VENV) -c constraints.txt -r requirements/test.txt -r requirements/dev.txt
	$(INSTALL) $(VENV) -c constraints.txt --no-deps -r requirements/test-nodeps.txt
	@touch $@

$(APART)/test.stamp: padiff_core/pyproject.toml padiff_mindspore/pyproject.toml constraints.txt \
  requirements/mindspore.txt requirements/mindspore-nodeps.txt | $(VENV)/test.stamp
	@echo "Installing MindSpore into an environment of its own, $(APART): a minute or more."
	test -x $(APART)/bin/python || $(BIN)/python -m venv --without-pip $(APART)
	$(INSTALL) $(APART) -c constraints.txt -r requirements/mindspore.txt -e ./padiff_core -e ./padiff_mindspore
	$(INSTALL) $(APART) -c constraints.txt --no-deps -r requirements/mindspore-nodeps.txt
	@touch $@

$(FLAX)/test.stamp: padiff_core/pyproject.toml padiff_torch/pyproject.toml padiff_paddle/pyproject.toml \
  examples/padiff_flax/pyproject.toml constraints-flax.txt requirements/flax.txt | $(VENV)/demo.stamp
	@echo "Installing JAX and Flax into an environment of its own, $(FLAX): a minute or more."
	test -x $(FLAX)/bin/python || $(BIN)/python -m venv --without-pip $(FLAX)
	$(INSTALL) $(FLAX) -c constraints-flax.txt -r requirements/flax.txt \
	  -e ./padiff_core -e ./padiff_torch -e ./padiff_paddle -e ./examples/padiff_flax
	@touch $@

$(RANKS)/test.stamp: padiff_core/pyproject.toml padiff_torch/pyproject.toml constraints.txt \
  requirements/ranks.txt requirements/ranks-nodeps.txt | $(VENV)/bin/python
	@echo "Installing DeepSpeed and Megatron into an environment of their own, $(RANKS): a minute or more."
	test -x $(RANKS)/bin/python || $(BIN)/python -m venv --without-pip $(RANKS)
	$(INSTALL) $(RANKS) -c constraints.txt -r requirements/ranks.txt -e ./padiff_core -e ./padiff_torch
	DS_BUILD_OPS=0 $(INSTALL) $(RANKS) -c constraints.txt --no-deps --no-build-isolation -r requirements/ranks-nodeps.txt
	@touch $@

$(OLDEST)/test.stamp: $(PYPROJECTS) constraints-oldest.txt requirements/oldest.txt | $(VENV)/bin/python
	@echo "Installing the oldest versions into an environment of their own, $(OLDEST): a minute or more."
	test -x $(OLDEST)/bin/python || $(BIN)/python -m venv --without-pip $(OLDEST)
	$(INSTALL) $(OLDEST) -c constraints-oldest.txt -r requirements/oldest.txt $(PACKAGES)
	@touch $@
