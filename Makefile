# Everything a clone needs: `make demo` is the quickstart, `make test` the tests. `make` alone lists the rest.

PYTHON ?= python3
PIP_ARGS ?=
WORKDIR ?= runs/quickstart
TOKEN_FILE ?=
PORT ?= 8000
SHARE ?= 1
TESTERS ?= 2
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PIP := $(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt $(PIP_ARGS)

# Before anything imports torch: threads that spin while they wait make a busy machine many times slower.
export OMP_WAIT_POLICY ?= PASSIVE

.DEFAULT_GOAL := help
.PHONY: help setup demo serve test test-slow test-neighbours package site chaos check bench-adapters bench-ann bench-big-ann bench-scifact bench-encode bench-ehi bench-hce bench-retreever bench-axn bench-batch bench-serve bench-embedded bench-quality bench-beam bench-filters bench-answers bench-incremental bench-inspection bench-scale bench-search bench-large bench-leaf-by-leaf bench-words bench-live bench-growth bench-new-model bench-default-training bench-adopt bench-chain bench-late-interaction bench-workers rehearsal fuzz-http check-history clean

help:  ## this list
	@grep -E '^[a-z-]+:.*##' $(firstword $(MAKEFILE_LIST)) | sed -E 's/^([a-z-]+):.*## */  make \1|/' \
		| awk -F'|' '{ printf "%-26s%s\n", $$1, $$2 }'
	@echo
	@echo '  PYTHON=python3.12      the Python (3.11 or newer) that .venv is made from'
	@echo '  PIP_ARGS="..."         more arguments for pip. Your pip configuration counts too. On Linux the usual'
	@echo '                         build of torch brings gigabytes of CUDA packages; an index of CPU builds avoids'
	@echo '                         them: make setup PIP_ARGS="--extra-index-url URL"'

setup: $(STAMP)  ## install into .venv what constraints.txt pins, once

# torch first and by itself: it is the largest, and what needs it then finds it there.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; v = sys.version.split()[0]; sys.exit(None if sys.version_info >= (3, 11) else \
		"rayhier needs Python 3.11 or newer; $(PYTHON) is " + v + ". Name another one: make setup PYTHON=python3.11")'
	@echo 'Installing into $(VENV) (some minutes the first time)'
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) torch==2.13.0
	@$(PIP) -e '.[cpu,demo,dev]'
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

# Other libraries' own tests, in an environment of their own that sees this one's packages.
NEIGHBOURS := .venv-neighbours
$(NEIGHBOURS)/.installed: $(STAMP) tests/neighbours/requirements.txt docs/site/requirements.txt
	@$(BIN)/python -m venv $(NEIGHBOURS)
	@$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
		> $$($(NEIGHBOURS)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/rayhier.pth
	@$(NEIGHBOURS)/bin/python -m pip install -q --disable-pip-version-check -r tests/neighbours/requirements.txt $(PIP_ARGS)
	@touch $@

test-neighbours: $(NEIGHBOURS)/.installed  ## other libraries' own tests of their stores, over an index opened and served
	$(NEIGHBOURS)/bin/python -m pytest tests/neighbours -o asyncio_mode=auto -W default --allow-hosts=127.0.0.1,::1 --allow-unix-socket -n $(TESTERS) --dist loadfile

site: $(NEIGHBOURS)/.installed  ## the documentation as a site in build/site, with search; a warning is an error
	NO_MKDOCS_2_WARNING=1 $(NEIGHBOURS)/bin/python -m mkdocs build --strict -f docs/site/mkdocs.yml

package: setup  ## sdist and wheel, installed without extras and with each: what each brings in MB, and five lines that search
	@$(PIP) -e '.[dev]'
	$(BIN)/python -m benchmarks.package

bench-adapters: $(NEIGHBOURS)/.installed  ## milliseconds that each adapter adds to a search: WORKDIR=runs/quickstart
	$(NEIGHBOURS)/bin/python -m benchmarks.adapters $(WORKDIR)

bench-ann: $(NEIGHBOURS)/.installed  ## ann-benchmarks' own runner and plot beside faiss and hnswlib: ANN_BENCHMARKS=CHECKOUT
	@$(NEIGHBOURS)/bin/python -m pip install -q --disable-pip-version-check -r benchmarks/neighbours/requirements.txt $(PIP_ARGS)
	$(NEIGHBOURS)/bin/python -m benchmarks.neighbours.ann $(ANN_BENCHMARKS) --out docs/images/ann-benchmarks.png

bench-big-ann: $(NEIGHBOURS)/.installed  ## big-ann-benchmarks' streaming runner on its random-xs: BIG_ANN_BENCHMARKS=CHECKOUT
	@$(NEIGHBOURS)/bin/python -m pip install -q --disable-pip-version-check -r benchmarks/neighbours/requirements.txt $(PIP_ARGS)
	$(NEIGHBOURS)/bin/python -m benchmarks.neighbours.big_ann $(BIG_ANN_BENCHMARKS)

chaos: setup  ## an index built while driver, actors and nodes are killed at fifty seeded points
	RAYHIER_CHAOS=50 $(BIN)/python -m pytest tests/integration/test_chaos.py

fuzz-http: setup  ## thousands of requests that schemathesis makes from the schema of a small served index, forms of its paths, hostile bodies
	@$(PIP) -e '.[fuzz]'
	$(BIN)/python -m benchmarks.fuzz_http
	$(BIN)/python -m benchmarks.fuzz_paths runs/fuzz

check-history: setup  ## 200,000 changes and reads in two histories of 8 clients, 300 kills, 40 swaps, disks that fail, and a proof that nothing is lost
	$(BIN)/python -m benchmarks.history

check: setup  ## format, lint, types, layers
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

bench-scifact: setup  ## SciFact beside its controls, three seeds, one table
	$(BIN)/python -m benchmarks.scifact

bench-ehi: setup  ## EHI's ablations on SciFact: a table and figures below docs/
	$(BIN)/python -m benchmarks.ehi

bench-hce: setup  ## HCE beside contrast and what each leaves out, on four collections: docs/hce.md
	$(BIN)/python -m benchmarks.hce

bench-retreever: setup  ## ReTreever's levels beside adapters and other trees: docs/retreever.md
	$(BIN)/python -m benchmarks.retreever

bench-axn: setup  ## search with a cross-encoder within a budget, beside its controls: docs/axn.md
	$(BIN)/python -m benchmarks.axn --large

bench-serve: setup  ## a served index under bounded load, beside a bare Serve application: docs/serve.md
	$(BIN)/python -m benchmarks.serve

bench-embedded: setup  ## an embedded server beside FastAPI with a Searcher in one process: docs/embedded.md
	$(BIN)/python -m benchmarks.serve.embedded

bench-quality: setup  ## documents visited against recall, every system beside its controls: docs/quality.md
	$(BIN)/python -m benchmarks.quality

bench-incremental: setup  ## documents added after training: recall of old and of new queries, time a document
	$(BIN)/python -m benchmarks.incremental

bench-inspection: setup  ## a million synthetic documents: time and memory of keywords, of a page and of paths
	$(BIN)/python -m benchmarks.inspection

bench-beam: setup  ## a beam of its own for every query beside one for all, at equal recall
	$(BIN)/python -m benchmarks.beam

bench-filters: setup  ## filters that half, a tenth and a hundredth match beside a filtered exact search
	$(BIN)/python -m benchmarks.filters

bench-answers: setup  ## what users get: the shipped search beside its parts and the untouched encoder, on four collections
	$(BIN)/python -m benchmarks.answers

bench-scale: setup  ## a leaf map of synthetic vectors: time, memory, bytes, growth; 10,000,000 with --documents
	$(BIN)/python -m benchmarks.scale

bench-search: setup  ## faiss, ScaNN, hnswlib, LanceDB and the leaf map over the same vectors
	@$(PIP) -e ".[peers]"
	@$(BIN)/python -m benchmarks.search

bench-batch: setup  ## a file of queries as a job beside the scan alone, and a graph of neighbours beside HNSW
	$(BIN)/python -m benchmarks.batch

bench-large: setup  ## up to ten million vectors in a gigabyte beyond files, beside faiss and LanceDB on disk
	@$(PIP) -e ".[peers]"
	@$(BIN)/python -m benchmarks.large

bench-leaf-by-leaf: setup  ## lists scanned query by query and leaf by leaf, beside faiss' big_batch_search: WORKDIR=runs/quickstart
	$(BIN)/python -m benchmarks.leaf_by_leaf $(WORKDIR)

rehearsal: setup  ## the job over MS MARCO on made-up files, driver and node killed: docs/growing.md; SHARE=1 of its size
	$(BIN)/python -m benchmarks.rehearsal --share $(SHARE)

bench-words: setup  ## BM25 by an index's postings beside bm25s and tantivy, and what it adds to a search
	$(BIN)/python -m benchmarks.words

bench-growth: setup  ## an index that grows by topics it has not seen, as it is and maintained
	$(BIN)/python -m benchmarks.growth

bench-live: setup  ## an index that changes while it is searched: make bench-live WORKDIR=runs/quickstart [RIVALS=a python with lancedb and qdrant-edge-py]
	$(BIN)/python -m benchmarks.live $(WORKDIR) $(if $(RIVALS),--rivals $(RIVALS))

bench-new-model: setup  ## a newly trained model, served at once, against its index built whole
	$(BIN)/python -m benchmarks.new_model

bench-default-training: setup  ## trainings on folds of families of queries, alone and hybrid, and rules for BM25's weight
	$(BIN)/python -m benchmarks.default_training scifact

bench-adopt: setup  ## what a training is predicted to gain, and what it gains, on small collections
	$(BIN)/python -m benchmarks.adopt

bench-chain: setup  ## the whole chain with a cross-encoder, beside the same search without it
	$(BIN)/python -m benchmarks.chain

bench-late-interaction: setup  ## what MaxSim of tokens adds to hybrid search, on the same folds
	$(BIN)/python -m benchmarks.late_interaction scifact

bench-workers: setup  ## training steps a second, one worker and two, and whether their gradients agree
	$(BIN)/python -m benchmarks.workers

bench-encode: setup  ## texts encoded a second beside a bare loop and sentence-transformers
	$(BIN)/python -m benchmarks.encode

clean:  ## remove .venv and caches; runs stay
	rm -rf $(VENV) *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find rayhier tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
