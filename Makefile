# Everything a clone needs: `make demo` is the quickstart, `make test` the tests. `make` alone lists the rest.

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

# Before anything imports torch: threads that spin while they wait make a busy machine many times slower.
export OMP_WAIT_POLICY ?= PASSIVE

.DEFAULT_GOAL := help
.PHONY: help setup demo serve test test-slow test-neighbours package site chaos check bench fuzz-http check-history clean

help:  ## this list
	@grep -E '^[a-z-]+:.*##' $(firstword $(MAKEFILE_LIST)) | sed -E 's/^([a-z-]+):.*## */  make \1|/' \
		| awk -F'|' '{ printf "%-26s%s\n", $$1, $$2 }'
	@echo
	@echo '  NAME=...               a benchmark: $(BENCHMARKS)'
	@echo '  PYTHON=python3.12      the Python (3.11 or newer) that .venv is made from'
	@echo '  PIP_ARGS="..."         more arguments for pip. Your pip configuration counts too. On Linux the usual'
	@echo '                         build of torch brings gigabytes of CUDA packages; an index of CPU builds avoids'
	@echo '                         them: make setup PIP_ARGS="--extra-index-url URL"'

setup: $(STAMP)  ## install into .venv what constraints.txt pins, once

# torch first and by itself: it is the largest, and what needs it then finds it there.
$(STAMP): pyproject.toml constraints.txt setup.py $(wildcard rayhier/search/native/*.cpp rayhier/search/native/*.h)
	@$(PYTHON) -c 'import sys; v = sys.version.split()[0]; sys.exit(None if sys.version_info >= (3, 11) else \
		"rayhier needs Python 3.11 or newer; $(PYTHON) is " + v + ". Name another one: make setup PYTHON=python3.11")'
	@echo 'Installing into $(VENV) (some minutes the first time)'
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) torch==2.13.0
	@$(PIP) -e '.[train,cpu,demo,dev]'
	@touch $@

demo: setup  ## the quickstart: train, index and measure on the docstrings of your Python
	$(BIN)/rayhier run specs/quickstart.yaml

serve: setup  ## search over HTTP from one process until Ctrl-C: WORKDIR=runs/quickstart TOKEN_FILE= PORT=8000
	$(BIN)/rayhier serve $(WORKDIR) $(if $(TOKEN_FILE),--token-file $(TOKEN_FILE)) --port $(PORT)

# Whole files to whoever is free, in their order: the longest lie in tests/integration and come first.
test: setup  ## the tests but for the slow ones, by TESTERS=2 processes, each with a Ray cluster of its own
	$(BIN)/python -m pytest -m 'not slow' -n $(TESTERS) --dist loadfile --no-loadscope-reorder --durations=25

test-slow: setup  ## the tests that take half a minute or more: kills, chaos, buckets, jobs, histories
	$(BIN)/python -m pytest -m slow -n $(TESTERS) --dist loadfile --no-loadscope-reorder --durations=25

# Other libraries' own tests, in an environment of their own that sees this one's packages. The longest file is first.
NEIGHBOURS := .venv-neighbours
$(NEIGHBOURS)/.installed: $(STAMP) tests/neighbours/requirements.txt docs/site/requirements.txt
	@$(BIN)/python -m venv $(NEIGHBOURS)
	@$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
		> $$($(NEIGHBOURS)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/rayhier.pth
	@$(NEIGHBOURS)/bin/python -m pip install -q --disable-pip-version-check -r tests/neighbours/requirements.txt $(PIP_ARGS)
	@touch $@

test-neighbours: $(NEIGHBOURS)/.installed  ## other libraries' own tests of their stores, over an index opened and served
	$(NEIGHBOURS)/bin/python -m pytest tests/neighbours/test_notebook.py tests/neighbours -o asyncio_mode=auto -W default \
		--allow-hosts=127.0.0.1,::1 --allow-unix-socket -n $(TESTERS) --dist loadfile --no-loadscope-reorder --durations=15

site: $(NEIGHBOURS)/.installed  ## the documentation as a site in build/site, with search; a warning is an error
	NO_MKDOCS_2_WARNING=1 $(NEIGHBOURS)/bin/python -m mkdocs build --strict -f docs/site/mkdocs.yml

package: setup  ## sdist and wheel, installed without extras and with each: what each brings in MB; then the Dockerfile's pip lines
	@$(PIP) -e '.[dev]'
	$(BIN)/python -m benchmarks.package
	$(BIN)/python -m benchmarks.image

chaos: setup  ## an index built while driver, actors and nodes are killed at fifty seeded points
	RAYHIER_CHAOS=50 $(BIN)/python -m pytest tests/integration/test_chaos.py

fuzz-http: setup  ## thousands of requests to a served index: by its schema, and hostile bodies: WORKDIR=runs/quickstart
	@$(PIP) -e '.[fuzz]'
	$(BIN)/python -m tests.system.fuzz_http $(WORKDIR)

check-history: setup  ## 200,000 changes and reads next to 300 kills, 40 swaps and failing disks; proves that nothing is lost
	$(BIN)/python -m tests.system.history

check: setup  ## format, lint, types, layers, prose
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python -m tests.prose

# What two of them measure beside the index is an extra.
bench: setup  ## one benchmark: NAME=serve runs `python -m benchmarks.serve`, ARGS="..." its options
	@$(if $(filter $(NAME),$(BENCHMARKS)),,echo 'NAME: got "$(NAME)"; allowed: $(BENCHMARKS)'; exit 2)
	@$(if $(filter search large,$(NAME)),$(PIP) -e '.[peers]')
	$(BIN)/python -m benchmarks.$(NAME) $(ARGS)

clean:  ## remove .venv and caches; runs stay
	rm -rf $(VENV) *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find rayhier tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
