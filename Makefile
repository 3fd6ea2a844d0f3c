# make demo    see it work          make test    prove a change
# make lint    style and types      make peers   what the tests need besides Python packages
# make bench   what it costs        make bench-quick
# make chaos   break it at random, MINUTES=30 SEED=7
# make load    an hour of work in minutes, TASKS=200000
#
# Everything lands in .venv and tests/npm/node_modules. A second run installs nothing: the
# stamps are older than their recipes only when pyproject.toml or package.json changed.

PYTHON ?= python3
WORKERS ?= 2
PYTEST_ARGS ?=

VENV = .venv
DEMO_READY = $(VENV)/.demo-ready
TEST_READY = $(VENV)/.test-ready
PEERS_READY = tests/npm/node_modules/.ready

# Processes and signals are real, and so are busy machines: what fails is tried once more, alone,
# and what fails twice has failed.
AGAIN = $(VENV)/bin/pytest -q --last-failed --last-failed-no-failures none

BENCHES = $(wildcard bench/*.py)

.PHONY: demo test lint format bench bench-quick chaos load peers clean

demo: $(DEMO_READY)
	$(VENV)/bin/pgflowd demo --once

test: $(TEST_READY) $(PEERS_READY)
	$(VENV)/bin/pytest -q -n $(WORKERS) --dist worksteal $(PYTEST_ARGS) || $(AGAIN)

lint: $(TEST_READY)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

format: $(TEST_READY)
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

bench: $(TEST_READY) $(PEERS_READY)
	for bench in $(BENCHES); do $(VENV)/bin/python $$bench || exit 1; done

bench-quick: $(TEST_READY) $(PEERS_READY)
	for bench in $(BENCHES); do $(VENV)/bin/python $$bench --quick || exit 1; done

chaos: $(TEST_READY)
	$(VENV)/bin/python tests/chaos/chaos.py $(if $(MINUTES),--minutes $(MINUTES)) \
	  $(if $(SECONDS),--seconds $(SECONDS)) $(if $(DAEMONS),--daemons $(DAEMONS)) \
	  $(if $(SEED),--seed $(SEED))

load: $(TEST_READY)
	$(VENV)/bin/python tests/chaos/load.py $(if $(TASKS),--tasks $(TASKS))

peers: $(PEERS_READY)

clean:
	rm -rf $(VENV) tests/npm/node_modules .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(VENV)/bin/pip:
	PYTHON=$(PYTHON) sh tests/setup/venv.sh $(VENV)

$(DEMO_READY): pyproject.toml | $(VENV)/bin/pip
	$(VENV)/bin/python -m pip install --quiet --editable '.[dev]'
	touch $@

$(TEST_READY): pyproject.toml | $(VENV)/bin/pip
	$(VENV)/bin/python -m pip install --quiet --editable '.[all]'
	touch $@ $(DEMO_READY)

$(PEERS_READY): tests/npm/package.json tests/npm/package-lock.json
	sh tests/setup/peers.sh
	touch $@
