# Commands of a clone. `make` lists them.

PYTHON ?= python3
PIP_ARGS ?=
WORKDIR ?= runs/quickstart
TOKEN_FILE ?=
PORT ?= 8000
TESTERS ?= 2
NAME ?=
ARGS ?=
BENCHMARKS := adopt answers bm25 default_training gpu image large live live.versions modes mutate package papers.axn \
	papers.ehi papers.hce papers.retreever quality query rehearsal rehearsal.whole scale search serve serve.embedded \
	small_queries start text
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PIP := $(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt $(PIP_ARGS)

# Threads that spin while they wait make a busy machine many times slower. torch reads this when it is imported.
export OMP_WAIT_POLICY ?= PASSIVE

.DEFAULT_GOAL := help
.PHONY: help setup demo serve test test-slow test-neighbours package site chaos check bench fuzz-http check-history clean

help:  ## print this list
	@grep -E '^[a-z-]+:.*##' $(firstword $(MAKEFILE_LIST)) | sed -E 's/^([a-z-]+):.*## */  make \1|/' \
		| awk -F'|' '{ printf "%-26s%s\n", $$1, $$2 }'
	@echo
	@echo '  NAME=...               name of a benchmark: $(BENCHMARKS)'
	@echo '  PYTHON=python3.12      Python (3.11 or newer) from which .venv is made'
	@echo '  PIP_ARGS="..."         further arguments for pip. On Linux, the usual build of torch brings gigabytes of'
	@echo '                         CUDA packages. An index of CPU builds avoids them:'
	@echo '                         make setup PIP_ARGS="--extra-index-url URL"'

setup: $(STAMP)  ## install rayhier into .venv, with the versions of constraints.txt

# torch is the largest package. If it is installed first, the packages that need torch find it.
$(STAMP): pyproject.toml constraints.txt setup.py $(wildcard rayhier/search/native/*.cpp rayhier/search/native/*.h)
	@$(PYTHON) -c 'import sys; v = sys.version.split()[0]; sys.exit(None if sys.version_info >= (3, 11) else \
		"rayhier needs Python 3.11 or newer; $(PYTHON) is " + v + ". Name another Python: make setup PYTHON=python3.11")'
	@echo 'Installing into $(VENV) (some minutes the first time)'
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) torch==2.13.0
	@$(PIP) -e '.[train,cpu,demo,dev]'
	@touch $@

demo: setup  ## run the quickstart: train, index and measure on the docstrings of your Python
	$(BIN)/rayhier run specs/quickstart.yaml

serve: setup  ## serve searches over HTTP until Ctrl-C: WORKDIR=runs/quickstart TOKEN_FILE= PORT=8000
	$(BIN)/rayhier serve $(WORKDIR) $(if $(TOKEN_FILE),--token-file $(TOKEN_FILE)) --port $(PORT)

# A free process takes the next whole file. The longest files are in tests/integration, and come first.
test: setup  ## run all tests except the slow ones, in TESTERS=2 processes with one Ray cluster each
	$(BIN)/python -m pytest -m 'not slow' -n $(TESTERS) --dist loadfile --no-loadscope-reorder --durations=25

test-slow: setup  ## run the tests that take half a minute or more: kills, chaos, buckets, jobs, histories
	$(BIN)/python -m pytest -m slow -n $(TESTERS) --dist loadfile --no-loadscope-reorder --durations=25

# Tests of other libraries run in a separate environment, which also sees the packages of .venv. The longest file is first.
NEIGHBOURS := .venv-neighbours
$(NEIGHBOURS)/.installed: $(STAMP) tests/neighbours/requirements.txt docs/site/requirements.txt
	@$(BIN)/python -m venv $(NEIGHBOURS)
	@$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
		> $$($(NEIGHBOURS)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/rayhier.pth
	@$(NEIGHBOURS)/bin/python -m pip install -q --disable-pip-version-check -r tests/neighbours/requirements.txt $(PIP_ARGS)
	@touch $@

test-neighbours: $(NEIGHBOURS)/.installed  ## run the tests of other libraries for their stores, with an index of rayhier
	$(NEIGHBOURS)/bin/python -m pytest tests/neighbours/test_notebook.py tests/neighbours -o asyncio_mode=auto -W default \
		--allow-hosts=127.0.0.1,::1 --allow-unix-socket -n $(TESTERS) --dist loadfile --no-loadscope-reorder --durations=15

site: $(NEIGHBOURS)/.installed  ## build the documentation as a site in build/site. A warning is an error
	NO_MKDOCS_2_WARNING=1 $(NEIGHBOURS)/bin/python -m mkdocs build --strict -f docs/site/mkdocs.yml

package: setup  ## build and install the package with each extra, and try the Dockerfile's pip lines
	@$(PIP) -e '.[dev]'
	$(BIN)/python -m benchmarks.package
	$(BIN)/python -m benchmarks.image

chaos: setup  ## build an index while driver, actors and nodes are killed at fifty seeded points
	RAYHIER_CHAOS=50 $(BIN)/python -m pytest tests/integration/test_chaos.py

fuzz-http: setup  ## send thousands of valid and hostile requests to a server: WORKDIR=runs/quickstart
	@$(PIP) -e '.[fuzz]'
	$(BIN)/python -m tests.system.fuzz_http $(WORKDIR)

check-history: setup  ## check that no change is lost next to 300 kills, 40 swaps and failing disks
	$(BIN)/python -m tests.system.history

check: setup  ## check format, lint, types, layers and prose
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python -m tests.prose

# Two benchmarks compare with other libraries, which an extra installs.
bench: setup  ## run a benchmark: NAME=serve runs `python -m benchmarks.serve` with ARGS="..."
	@$(if $(filter $(NAME),$(BENCHMARKS)),,echo 'NAME: got "$(NAME)"; allowed: $(BENCHMARKS)'; exit 2)
	@$(if $(filter search large,$(NAME)),$(PIP) -e '.[peers]')
	$(BIN)/python -m benchmarks.$(NAME) $(ARGS)

clean:  ## remove .venv and caches, and keep runs
	rm -rf $(VENV) *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find rayhier tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
