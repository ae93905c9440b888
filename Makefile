# Two commands for a fresh machine: `make demo` and `make test`. Each target sets up what
# it needs by itself: a virtual environment in .venv, and Debian packages when root. The demo
# has an environment of its own, with the package as users install it and no tools.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

PYTHON ?= python3
DEMO_ARGS ?=
BENCH_ARGS ?=
TEST_ARGS ?=
# How many run side by side; a file of tests stays together.
TEST_PROCESSES ?= 2
CHAOS_ARGS ?=
SIM_ARGS ?=
MUTANTS_ARGS ?=
SOAK_ARGS ?=
SPEED_ARGS ?=
MINUTES ?= 30

# Branch coverage in percent: the model is pure, so all of it; the rest may only rise.
COVERAGE_MODEL_MIN ?= 100
COVERAGE_MIN ?= 70

VENV := .venv
BIN := $(VENV)/bin
PY := $(BIN)/python
READY := $(VENV)/.ready
DEMO_VENV := .venv-demo
DEMO_READY := $(DEMO_VENV)/.ready

# Warnings are errors in tests; here an old pip must not ask for a newer one.
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# The suite starts a thousand short processes: each would compile the whole package anew.
export PYTHONDONTWRITEBYTECODE :=

# --- for people ---------------------------------------------------------------------------

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: demo
demo: $(DEMO_READY) ## Run a small shop and kill one of its workers (DEMO_ARGS="--seconds 40 --no-browser")
	@$(DEMO_VENV)/bin/durio demo $(DEMO_ARGS)

.PHONY: test
test: $(READY) ## Run everything: static checks, the whole suite with branch coverage, other Pythons
	@$(MAKE) -j 2 --output-sync=target static servers environments
	$(PY) -m pytest -n $(TEST_PROCESSES) --dist loadfile --no-loadscope-reorder --cov --cov-report= $(TEST_ARGS)
	$(PY) -m coverage report --fail-under=$(COVERAGE_MIN)
	$(PY) -m coverage report --include='src/durio/model/*' --fail-under=$(COVERAGE_MODEL_MIN)
	@$(PY) -m tests.other_versions --processes $(TEST_PROCESSES)

.PHONY: check
check: $(READY) ## The quick one, under a minute: format, lint, layers, types, tidy, quick unit tests
	@$(MAKE) -j 2 --output-sync=target static quick

.PHONY: versions
versions: $(READY) ## Run a fast part on every other Python of this machine that Durio claims
	@$(PY) -m tests.other_versions

.PHONY: bench
bench: $(READY) ## Measure this machine (BENCH_ARGS="--json")
	@$(BIN)/durio bench $(BENCH_ARGS)

.PHONY: speed
speed: $(READY) ## Measure a release for docs/reports, 12 min (SPEED_ARGS="--quick --report /tmp")
	@$(PY) -m benchmarks.release $(SPEED_ARGS)

.PHONY: mutants
mutants: $(READY) ## Plant bugs in the engine and see each one caught (MUTANTS_ARGS="--list")
	@$(PY) -m tests.mutants $(MUTANTS_ARGS)

# SEEDS and FIRST_SEED are a range, SECONDS is a time box, SEED replays one with its story.
.PHONY: sim
sim: $(READY) ## Attack a simulated fleet (SEEDS=1000 FIRST_SEED=1; SECONDS=120; SEED=4711)
	@$(PY) -m tests.simulation $(if $(SEED),--seed $(SEED)) $(if $(SEEDS),--seeds $(SEEDS)) \
	  $(if $(FIRST_SEED),--first $(FIRST_SEED)) $(if $(SECONDS),--seconds $(SECONDS)) $(SIM_ARGS)

.PHONY: soak
soak: $(READY) ## Load real workers while things go wrong, and plot it (MINUTES=30 SOAK_ARGS="--seed 7")
	@$(PY) -m tests.soak --minutes $(MINUTES) --report docs/reports $(SOAK_ARGS)

.PHONY: fuzz-api
fuzz-api: MINUTES = 10
fuzz-api: $(READY) ## Attack the admin API with random requests by its document (MINUTES=10 SEED=7)
	@$(PY) -m tests.fuzz_api --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

.PHONY: chaos
chaos: $(READY) ## Disturb real processes, one fault at a time, 20 min (CHAOS_ARGS="--seconds 60")
	@$(PY) -m tests.e2e.chaos --page docs/reports/chaos.md \
	  --json docs/reports/chaos.json $(CHAOS_ARGS)

.PHONY: chaos-postgres
chaos-postgres: $(READY) ## Restart, kill and cut off a PostgreSQL under load, 25 min (CHAOS_ARGS="--cuts 20")
	@$(PY) -m tests.e2e.postgres_chaos --page docs/reports/chaos-postgres.md \
	  --json docs/reports/chaos-postgres.json $(CHAOS_ARGS)

.PHONY: ui
ui: $(READY) ## Build the dashboard's page from ui/ into src/durio/web/static
	@$(PY) ui/generate_types.py
	@$(PY) ui/build.py

.PHONY: pictures
pictures: $(READY) ## Take the pictures of the dashboard for docs/pictures
	@$(call debian_install,fonts-inter fonts-jetbrains-mono chromium)
	@$(PY) -m tests.browser.pictures

.PHONY: fix
fix: $(READY) ## Format the code and repair what the linter can repair
	$(PY) -m ruff check --fix-only --quiet .
	$(PY) -m ruff format .

.PHONY: clean
clean: ## Remove everything that make has made
	rm -rf $(VENV) $(VENV)-3.* $(DEMO_VENV) build dist htmlcov .coverage .coverage.* .hypothesis
	rm -rf ui/node_modules .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

# --- the parts of check -------------------------------------------------------------------

.PHONY: static format lint layers types tidy unit quick environments
static: format lint layers types

format: $(READY)
	$(PY) -m ruff format --check .

lint: $(READY)
	$(PY) -m ruff check .

layers: $(READY)
	$(BIN)/lint-imports --no-cache

types: $(READY)
	$(PY) -m basedpyright

tidy: $(READY)
	$(PY) -m pytest -q tests/tidy

unit: $(READY)
	$(PY) -m pytest -q tests/unit tests/faults

quick: $(READY)
	$(PY) -m pytest -q -m "not slow" -n $(TEST_PROCESSES) --dist loadfile tests/tidy tests/unit tests/faults

# Of the other Pythons. To install them takes a minute, mostly spent waiting.
environments: $(READY)
	@$(PY) -m tests.other_versions --install

# --- setting up ---------------------------------------------------------------------------

# Debian packages that only the suite needs, for servers that no wheel brings: the oldest
# PostgreSQL that we support, a pooler, and a browser with the fonts that layouts are tested
# with. Installed when root; other users are told, and the tests that need one are skipped,
# unless DURIO_REQUIRE_ALL=1 says that none may be.
DEBIAN_PACKAGES := postgresql-15 pgbouncer chromium fonts-dejavu-core

.PHONY: servers
servers:
	@for package in $(DEBIAN_PACKAGES); do \
	  dpkg -s "$$package" 2>/dev/null | grep -q "^Status: install ok" && continue; \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    $(call debian_install,"$$package"); \
	  else \
	    echo "Not installed, tests with it are skipped: $$package" >&2; \
	  fi; \
	done

define debian_install
if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
  apt-get update -qq; \
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $(1); \
else \
  echo "Please install: $(strip $(1))" >&2; exit 1; \
fi
endef

# Made once, and again when one of its inputs changes. The stamp is written last, so an
# install that was interrupted is taken up again. Wheels first: a compiler is not needed.
$(READY): pyproject.toml requirements-dev.txt constraints.txt
	@$(call make_venv,$(VENV))
	$(PY) -m pip install --quiet --prefer-binary -c constraints.txt -r requirements-dev.txt
	$(PY) -m pip install --quiet --prefer-binary -c constraints.txt --no-build-isolation -e .
	@touch $@

# Not editable: the demo runs what the wheel holds, so a changed source file installs it again.
$(DEMO_READY): pyproject.toml hatch_build.py constraints.txt README.md LICENSE $(shell find src -name '*.py' -o -name '*.sql' -o -path '*/web/static/*')
	@$(call make_venv,$(DEMO_VENV))
	@echo "Installing durio into $(DEMO_VENV) ..."
	@$(DEMO_VENV)/bin/python -m pip install --quiet --prefer-binary -c constraints.txt .
	@touch $@

# Debian's own python3 comes without the part that puts pip into an environment.
define make_venv
$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
  || { echo "Durio needs Python 3.11 or later; name one: make PYTHON=python3.12" >&2; exit 1; }; \
$(PYTHON) -c 'import ensurepip' 2>/dev/null || { $(call debian_install,python3-venv); }; \
$(1)/bin/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(1)
endef
