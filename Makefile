# make demo      install into .venv and run one script over two simulated pools
# make test      everything that CI runs: lint, test-unit, test-cluster
# make clean     remove what these made

PYTHON ?= python3
TORCH  ?= 2.13.0
VENV   := .venv
BIN    := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest -q
JOB    := examples/quickstart/job.yaml

.PHONY: demo test lint test-unit test-sanitizers test-cluster packages emulator generate clean
.DELETE_ON_ERROR:

demo: $(VENV)/installed
	$(BIN)/hettrain run --local $(JOB) --log-dir build/demo
	$(BIN)/python examples/quickstart/compare.py build/demo

test: lint test-unit test-cluster

lint: $(VENV)/installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy --python-version 3.10 hetccl
	$(BIN)/mypy operator/hettrain

test-unit: $(VENV)/installed-dev emulator
	$(PYTEST) tests/unit tests/faults tests/integration/hetccl

# The C core under AddressSanitizer, UndefinedBehaviorSanitizer and ThreadSanitizer, and on aarch64: part of test-unit.
test-sanitizers: $(VENV)/installed-dev emulator
	$(PYTEST) tests/unit/hetccl/test_core_stress.py

test-cluster: $(VENV)/installed-dev packages
	$(PYTEST) tests/helm tests/integration/hettrain tests/e2e

packages:
	@tests/cluster/install-packages

emulator:
	@tests/cluster/install-packages gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user

# Files that are made from code: the CRDs, the chart's copy of them and the references.
generate: $(VENV)/installed-dev
	$(BIN)/python -m hettrain.api.crd
	$(BIN)/python -m hettrain.api.reference
	$(BIN)/python -m hettrain.commands.reference

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "$(PYTHON) is older than Python 3.11: name a newer one with 'make PYTHON=python3.11 ...'"; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || tests/cluster/install-packages python3-venv
	@echo "making $(VENV)"
	@$(PYTHON) -m venv $(VENV)

$(VENV)/torch: $(VENV)/bin/python
	@echo "installing PyTorch $(TORCH) into $(VENV) (another release: make TORCH=X; any build of it serves, the CPU one is smallest)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check 'torch==$(TORCH)' numpy
	@touch $@

$(VENV)/installed: $(VENV)/torch pyproject.toml
	@echo "installing hetccl and hettrain into $(VENV)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[operator]'
	@touch $@

$(VENV)/installed-dev: $(VENV)/installed
	@echo "installing what the tests need into $(VENV)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[operator,dev]'
	@touch $@

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
