# The menu of this project: `make` lists it. CI runs the same recipes as a person does.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL: # the steps of a target are written in the order they must run
MAKEFLAGS += --no-print-directory
unexport PYTHONDONTWRITEBYTECODE # hundreds of processes load the same modules

BIN := .venv/bin
PYTEST := $(BIN)/python -m pytest
WORKERS := $(shell echo $$(($$(nproc) + 2)))

# The lanes of `make test`. A directory that is missing fails the run.
UNIT := tests/unit
FAST := tests/contract tests/property tests/docs tests/faults tests/powercut
REAL := tests/integration tests/acceptance tests/chaos tests/browser
ALONE := tests/chaos tests/browser
SPARK := tests/spark

.PHONY: help
help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-8s %s\n", $$1, $$2 }' Makefile

.PHONY: setup
setup: ## make .venv from the pins; needs Python 3.11+ and the network, does nothing when current
	@tools/setup.sh dev

.PHONY: demo
demo: ## see it work: a broker and two peers, killed and brought back, and the verdict of Spark
	@tools/setup.sh demo
	@$(BIN)/python tools/demo.py

.PHONY: test
test: setup packages beside-spark ## everything: check, and the four lanes of tests, on real servers
	@echo 'make test: everything passed'

.PHONY: check
check: setup ## formatting, lint, types, layers, spelling, pins and docs
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/codespell
	$(BIN)/python tools/pins.py --check
	$(BIN)/python tools/docs.py --check

.PHONY: chaos
chaos: export CLAUDEMESH_TEST_EVERY_POSTGRES := 1
chaos: setup packages ## the chaos tests with 20 times the rounds of `make test`; all on every PostgreSQL that is here
	$(PYTEST) -n $(WORKERS) --dist worksteal -k postgres $(UNIT) $(FAST) $(filter-out $(ALONE),$(REAL))
	$(PYTEST) tests/chaos tests/powercut tests/spark/test_ingest.py --effort=chaos --timeout=3600

.PHONY: soak
soak: setup packages ## the chaos tests with 400 times the rounds of `make test`, and presence at its full times
	$(PYTEST) tests/chaos tests/powercut tests/acceptance/test_presence_scenarios.py --effort=soak --timeout=0

.PHONY: mutants
mutants: setup packages ## plant every fault that `make test` does not, and expect its test to turn red
	$(PYTEST) -n $(WORKERS) --dist worksteal tests/mutation
	$(PYTEST) --effort=chaos tests/spark/test_planted_faults.py

.PHONY: interop
interop: setup ## other people's MCP clients at our server; needs Node, and is not part of `make test`
	$(BIN)/python tools/interop.py

.PHONY: bench
bench: setup packages ## measure, and print ratios beside the machine's own floor
	$(BIN)/python -m benchmarks

.PHONY: docs
docs: setup ## write the generated pages anew and build the site
	$(BIN)/python tools/docs.py
	$(BIN)/mkdocs build --strict

.PHONY: trace
trace: setup ## print every requirement, its state and the tests that prove it
	@$(BIN)/python tools/trace.py

.PHONY: pins
pins: setup ## renew requirements/*.txt from pyproject.toml
	$(BIN)/python tools/pins.py

.PHONY: clean
clean: ## remove whatever these targets made, .venv too
	rm -rf .venv build dist site .coverage .coverage.* .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find benchmarks docs src tests tools -type d -name __pycache__ -prune -exec rm -rf {} +

# --- the steps of `make test`, each runnable alone -------------------------------------------------

# Redis, Java, Chromium and strace. No wheel brings them, so the system's packages do.
.PHONY: packages
packages: setup
	@tools/system-packages.sh

# The kernel is small and pure, so its own tests leave nothing of it unvisited; the rest runs unmeasured, since measuring
# doubles what a property test costs.
.PHONY: unit
unit: setup
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -n auto $(UNIT)/kernel
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report --fail-under=100
	$(PYTEST) -n auto --dist worksteal $(UNIT) --ignore=$(UNIT)/kernel

# A process for every core, and then two more, since a test with a planted fault often waits for what will not come.
.PHONY: fast
fast: setup
	$(PYTEST) -n $(WORKERS) --dist worksteal $(FAST)

# Most of these wait far longer than they compute: two at once. Those that starve, kill and time processes run with no
# other beside them but, under `make test`, Spark's, which are niced.
.PHONY: real
real: setup
	$(PYTEST) -n 2 --dist worksteal $(filter-out $(ALONE),$(REAL))
	$(PYTEST) $(ALONE)

# One process, one JVM; patient, since it may be niced.
.PHONY: spark
spark: setup
	$(PYTEST) --timeout=1200 $(SPARK)

# Everything else waits now and then, for disks, servers and clocks, and Spark computes: so it runs beside all of it, and
# gives way. What waits most comes first, so that no core is idle at the end. Spark speaks last. `set -m` gives it a
# process group of its own, in which Ctrl-C is not ignored: so it is interrupted, and ends its servers and its JVM, as
# soon as this ends in any way. It has a minute for that.
.PHONY: beside-spark
beside-spark: setup packages
	@log=$$(mktemp); \
	set -m; nice -n 19 $(MAKE) spark </dev/null >$$log 2>&1 & spark=$$!; set +m; \
	trap 'kill -INT -- -$$spark 2>/dev/null && { sleep 60 >/dev/null 2>&1; kill -KILL -- -$$spark 2>/dev/null; } & reaper=$$!; \
	  wait $$spark 2>/dev/null || true; kill $$reaper 2>/dev/null || true; cat $$log; rm $$log' EXIT; \
	$(MAKE) check unit real fast; \
	wait $$spark
