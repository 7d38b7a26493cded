# Everything here works on a fresh Debian or Ubuntu machine with Python 3.11-3.13, make and python3-venv.
# The environment lives in .venv and is exactly requirements/lock.txt (versions and hashes).

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# The stamp's name holds what the environment depends on, so a changed lock or interpreter sets it up anew.
STAMP  := $(VENV)/.installed-$(shell $(PYTHON) -c 'import hashlib,sys; print(hashlib.sha256(open("requirements/lock.txt","rb").read()+sys.version.encode()).hexdigest()[:16])' 2>/dev/null)

QUICK  := not demo and not fault and not system

.PHONY: help setup demo test test-system check format lock test-faults fault-matrix findings-matrix mutants bench-overhead bench-accuracy bench-input bench-startup bench-report evaluations clean

help:            ## show this list
	@grep -E '^[a-z-]+: *.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*##/\t/' | expand -t 16

setup: $(STAMP)  ## create .venv with the pinned packages (quick when done before)

$(STAMP):
	@$(PYTHON) -c 'import sys; v=sys.version_info[:2]; sys.exit(0 if (3,11)<=v<(3,14) else "Headway needs Python 3.11, 3.12 or 3.13 (TensorFlow 2.21 has no wheel for %d.%d). Try: make PYTHON=python3.12 ..." % v)'
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || { echo 'Python has no venv module: apt-get install python3-venv'; exit 1; }
	@echo 'Setting up .venv (about a minute; 1.6 GB) ...'
	@$(PYTHON) -m venv --clear $(VENV)
	@$(BIN)/pip install -qq --disable-pip-version-check --require-hashes -r requirements/lock.txt
	@$(BIN)/pip install -qq --disable-pip-version-check --no-build-isolation --no-deps -e .
	@rm -f $(VENV)/.installed-* && touch $@

demo: setup      ## train the E1 CNN on MNIST with 1 parameter server, a chief and 1 worker; then a small sweep and its report
	@$(BIN)/headway run examples/mnist-async.yaml
	@$(BIN)/headway bench examples/demo-sweep.yaml --budget 120s
	@$(BIN)/headway report "$$($(BIN)/headway sweeps path last)" -o report.html

# What starts processes of its own has the machine to itself; the rest shares it, a process for each core.
test: setup      ## unit, contract and real-process tests (under ten minutes on two cores)
	@$(BIN)/python -m pytest -n auto --maxprocesses 4 --dist loadfile -m 'not real and $(QUICK)'
	@$(BIN)/python -m pytest -m 'real and $(QUICK)'

test-system: setup ## faults with real processes, emulated hosts, programs and data of others, and what `make demo` promises (minutes)
	@$(BIN)/python -m pytest -m 'demo or fault or system'

check: setup     ## format, lint, types
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy

format: setup    ## rewrite the sources in the project's format
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

test-faults: setup  ## the fault tests, ten times in a row
	@for i in 1 2 3 4 5 6 7 8 9 10; do echo "round $$i of 10"; $(BIN)/python -m pytest -q -m fault || exit 1; done

fault-matrix: setup  ## every fault of every role under every strategy; writes docs/faults.md (half an hour)
	@$(BIN)/python tests/faults/run_matrix.py

findings-matrix: setup  ## every condition provoked on emulated hosts, every rule asked; writes docs/findings.md (an hour, as root)
	@$(BIN)/python tests/findings/run_findings.py

mutants: setup   ## do the unit tests of the pure cores notice small changes? writes docs/mutants.md (minutes)
	@$(BIN)/python tests/mutants/run_mutants.py

bench-overhead: setup  ## Headway against hand-written scripts (over an hour; nothing else may run)
	@$(BIN)/python benchmarks/overhead.py

bench-accuracy: setup  ## does every model get where it should? (hours; writes benchmarks/results/targets-*.jsonl)
	@$(BIN)/python benchmarks/accuracy_targets.py

bench-input: setup  ## what real data costs beside made-up data (an hour; nothing else may run)
	@$(BIN)/python benchmarks/input.py

bench-startup: setup  ## how long `headway --help` takes, repeated
	@$(BIN)/python benchmarks/startup.py

bench-report: setup  ## how a report's seconds, memory and size grow with runs (minutes; nothing else may run)
	@$(BIN)/python benchmarks/report.py

evaluations: setup  ## the evaluations' experiments (E1-E5) as sweeps; writes docs/evaluations.md (hours; as root)
	@$(BIN)/python benchmarks/evaluations.py

lock:            ## renew requirements/lock.txt from pyproject.toml (needs uv)
	uv pip compile --universal --python-version 3.11 --generate-hashes --no-header --extra tensorflow --extra report --extra dev pyproject.toml -o requirements/lock.txt

clean:           ## remove the environment and caches (never runs/)
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache
