# make demo    see it work          make test    prove a change
# make lint    style and types      make peers   what the tests need besides Python packages
# make bench   what it costs        make bench-quick
# make chaos   break it at random, MINUTES=30 SEED=7
# make load    an hour of work in minutes, TASKS=200000
# make soak    limits, while processes die and runs are paused, MINUTES=10 SEED=7
# make ticks   schedules of a second, while processes die, MINUTES=10 SEED=7
# make undos   runs are undone while all is killed, RUNS=1000 SEED=7
# make nightly  all of these and the timing tests in half an hour, MINUTES=25 SEED=7; a table at the end
# make figures how large the house is, and whether anything of it has grown
# make clients  make the plain client, and what else exists twice, from the asynchronous one
# make site    build the documentation as a site, in build/site
# make pictures  take the pictures of the dashboard anew
# make deb     a Debian package, in dist
# make timing  the few tests that measure time, on a quiet machine
#
# Everything lands in .venv, .venv-peers (for bench) and tests/npm/node_modules. A second run
# installs nothing: the stamps are older than their recipes only when pyproject.toml or another
# list of packages changed.

PYTHON ?= python3
# on two cores, since most tests wait for processes
WORKERS ?= 6
PYTEST_ARGS ?=
BENCH_ARGS ?=
DIST ?= dist

VENV = .venv
DEMO_READY = $(VENV)/.demo-ready
TEST_READY = $(VENV)/.test-ready
PEERS_READY = tests/npm/node_modules/.ready

# Processes and signals are real, and so are busy machines: a failed test is tried once more, alone.
# A test that passes only then is named at the end, and is a bug.
AGAIN = $(VENV)/bin/python tests/setup/second_try.py

# Each holds how many files a new option, verb or kind of child touches, or that a name is used once.
FIGURES = tests/unit/test_names.py tests/unit/test_options.py \
  tests/unit/test_supervision_kinds.py tests/unit/test_statuses.py tests/docs/test_references.py

OTHERS = .venv-peers
OTHERS_READY = $(OTHERS)/.ready

.PHONY: demo test timing figures lint format bench bench-quick chaos load soak ticks undos nightly peers clean \
  clients pictures references site deb

demo: $(DEMO_READY)
	$(VENV)/bin/pgflowd demo --once

# Each of pytest's processes imports all tests, and each command of a test imports pgflowd: from bytecode,
# even where the environment says that none is written. Where none can be, they only take longer.
test: $(TEST_READY) $(PEERS_READY)
	-@$(VENV)/bin/python -m compileall -qq pgflowd
	PYTHONDONTWRITEBYTECODE= $(VENV)/bin/pytest -q -n $(WORKERS) --dist worksteal $(PYTEST_ARGS) || $(AGAIN)

figures: $(TEST_READY)
	@$(VENV)/bin/python tools/figures.py
	@$(VENV)/bin/pytest -q --no-header -p no:cacheprovider $(FIGURES)

pictures: $(TEST_READY) $(PEERS_READY)
	PGFLOWD_PICTURES=1 $(VENV)/bin/pytest -q tests/web/test_browser_pages.py -k pictures

clients: $(TEST_READY)
	$(VENV)/bin/python tools/make_clients.py

references: $(TEST_READY)
	PYTHONPATH=tests $(VENV)/bin/python -m support.references

deb: | $(VENV)/bin/pip
	$(VENV)/bin/python deploy/debian/build.py $(DIST)

site: $(TEST_READY)
	$(VENV)/bin/python tools/navigation.py
	$(VENV)/bin/zensical build --clean --strict
	$(VENV)/bin/python tools/llms.py build/site

timing: $(TEST_READY)
	$(VENV)/bin/pytest -q -m timing $(PYTEST_ARGS)

lint: $(TEST_READY)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

format: $(TEST_READY)
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

bench: $(TEST_READY) $(OTHERS_READY)
	$(VENV)/bin/python bench/peers.py $(BENCH_ARGS)
	$(VENV)/bin/python bench/starters.py
	$(VENV)/bin/python bench/many_flows.py
	$(VENV)/bin/python bench/waits.py
	$(VENV)/bin/python bench/planned.py
	$(VENV)/bin/python bench/gates.py
	$(VENV)/bin/python bench/growth.py
	$(VENV)/bin/python bench/schedules.py
	$(VENV)/bin/python bench/undo.py
	$(VENV)/bin/python bench/typed.py
	$(VENV)/bin/python bench/web.py

bench-quick: $(TEST_READY) $(OTHERS_READY)
	$(VENV)/bin/python bench/peers.py --quick $(BENCH_ARGS)
	$(VENV)/bin/python bench/starters.py --quick
	$(VENV)/bin/python bench/many_flows.py --quick --flows 60
	$(VENV)/bin/python bench/waits.py --quick
	$(VENV)/bin/python bench/planned.py --quick
	$(VENV)/bin/python bench/gates.py --quick
	$(VENV)/bin/python bench/growth.py --quick
	$(VENV)/bin/python bench/schedules.py --quick
	$(VENV)/bin/python bench/undo.py --quick
	$(VENV)/bin/python bench/typed.py --rounds 40
	$(VENV)/bin/python bench/web.py --runs 2000 --seconds 4

chaos: $(TEST_READY) $(PEERS_READY)
	$(VENV)/bin/python tests/chaos/chaos.py $(if $(MINUTES),--minutes $(MINUTES)) \
	  $(if $(SECONDS),--seconds $(SECONDS)) $(if $(DAEMONS),--daemons $(DAEMONS)) \
	  $(if $(SEED),--seed $(SEED))
	$(VENV)/bin/python tests/chaos/failovers.py $(if $(SEED),--seed $(SEED))

load: $(TEST_READY)
	$(VENV)/bin/python tests/chaos/load.py $(if $(TASKS),--tasks $(TASKS))

soak: $(TEST_READY)
	$(VENV)/bin/python tests/chaos/soak.py $(if $(MINUTES),--minutes $(MINUTES)) \
	  $(if $(SEED),--seed $(SEED))

ticks: $(TEST_READY)
	$(VENV)/bin/python tests/chaos/ticks.py $(if $(MINUTES),--minutes $(MINUTES)) \
	  $(if $(SEED),--seed $(SEED))

undos: $(TEST_READY)
	$(VENV)/bin/python tests/chaos/undos.py $(if $(RUNS),--runs $(RUNS)) $(if $(SEED),--seed $(SEED))

nightly: $(TEST_READY) $(PEERS_READY)
	$(VENV)/bin/python tests/chaos/nightly.py $(if $(MINUTES),--minutes $(MINUTES)) \
	  $(if $(SEED),--seed $(SEED))

peers: $(PEERS_READY)

clean:
	rm -rf $(VENV) $(OTHERS) tests/npm/node_modules .pytest_cache .mypy_cache .ruff_cache .hypothesis \
	  .cache build

$(VENV)/bin/pip:
	PYTHON=$(PYTHON) sh tests/setup/venv.sh $(VENV)

$(OTHERS_READY): bench/peers.txt
	test -x $(OTHERS)/bin/pip || PYTHON=$(PYTHON) sh tests/setup/venv.sh $(OTHERS)
	$(OTHERS)/bin/python -m pip install --quiet --requirement bench/peers.txt
	touch $@

$(DEMO_READY): pyproject.toml | $(VENV)/bin/pip
	$(VENV)/bin/python -m pip install --quiet --editable '.[dev,web]'
	touch $@

$(TEST_READY): pyproject.toml | $(VENV)/bin/pip
	$(VENV)/bin/python -m pip install --quiet --editable '.[all]'
	touch $@ $(DEMO_READY)

$(PEERS_READY): tests/npm/package.json tests/npm/package-lock.json
	sh tests/setup/peers.sh
	touch $@
