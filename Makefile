# Works with only python3, pip and make, also where Debian's python3-venv is missing.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

# The tests start hundreds of processes; without bytecode each of them compiles every module again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo programs test test-fast test-all test-times lint docs screenshots audit sbom lock bench sim upgrade-drill drills drills-short drills-unprivileged drills-planted drills-night drills-long backup-drill scale-drill container-drill binary binary-demo clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1\t\2/p' Makefile | expand -t 16

demo: $(READY) ## three nodes, real jobs, the leader killed half-way
	$(BIN)/raftsched demo

# In one process more than there are cores (`tests/conftest.py`), but few enough that the clusters of the acceptance tests have room.
PYTEST := $(BIN)/python -m pytest --numprocesses auto --maxprocesses 4 --dist worksteal

test: $(READY) programs ## the tests for a day's work, real processes and kills included: under 5 minutes
	$(PYTEST) -m "not slow"

test-fast: $(READY) programs ## of these, the ones that start no cluster
	$(PYTEST) -m "not slow and not acceptance"

test-all: $(READY) programs ## all tests, each held to the CPU budget of its tier
	$(PYTEST) --cpu=check

# Also on a fresh machine: browser, Docker and what else tests run beside Python.
programs:
	@bash .ci/packages

TESTS ?=

test-times: $(READY) ## measure all tests, or those in TESTS=, and write tests/slow.txt
	$(PYTEST) --cpu=record $(TESTS)

lint: $(READY) ## ruff, mypy and the import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(READY) ## build the documentation into site/, and check its links
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --config-file configs/mkdocs.yml

screenshots: $(READY) ## pictures of the dashboard's pages for its documentation; needs Chromium
	$(BIN)/python -m tests.dashboard.screenshots

LOCK := configs/requirements.lock
PIN := $(BIN)/pip-compile --quiet --generate-hashes --no-header --strip-extras --no-emit-find-links

audit: $(READY) ## known vulnerabilities of the pinned dependencies
	$(BIN)/pip-audit --progress-spinner off --disable-pip --require-hashes --requirement $(LOCK) \
		--requirement configs/build.lock

sbom: $(READY) ## the software bill of materials of an image: build/sbom.json, CycloneDX
	@mkdir -p build
	$(BIN)/cyclonedx-py requirements --pyproject pyproject.toml --output-reproducible --output-file build/sbom.json $(LOCK)

lock: $(READY) ## pin all dependencies of an image, and of its build, with hashes
	$(PIN) --extra node --output-file $(LOCK) pyproject.toml
	$(PIN) --allow-unsafe --only-build-deps --all-build-deps --output-file configs/build.lock pyproject.toml

bench: $(READY) ## throughput, CPU per job, and time to a new leader
	$(BIN)/raftsched bench
	$(BIN)/raftsched bench --failover 20

SEEDS ?= 200
START ?= 1
NODES ?= 3

sim: $(READY) ## simulated clusters under faults: SEEDS=200 START=1 NODES=3
	$(BIN)/python -m chaos.sim --seeds $(SEEDS) --start $(START) --nodes $(NODES)

FROM ?=

upgrade-drill: $(READY) ## rolling restart and rolling upgrade under load: FROM=commit or tag of the release before
	$(BIN)/python -m tests.drills.upgrade $(if $(FROM),--from $(FROM))

drills: $(READY) ## faults on real processes, on 3 and on 5 nodes, judged by the checkers: about 15 minutes
	$(BIN)/python -m chaos drills --all --out drills-report/3
	$(BIN)/python -m chaos drills --nodes 5 isolate_leader ring bridge --out drills-report/5

DRILLS ?=
SEED ?= 1

drills-short: $(READY) ## one or two faults of each kind, in about four minutes: DRILLS=--no-bounds
	$(BIN)/python -m chaos drills $(DRILLS) --out drills-report/short

# Root without capabilities may do what everybody may.
UNPRIVILEGED := $(if $(filter 0,$(shell id -u)),setpriv --bounding-set=-all --inh-caps=-all)

drills-unprivileged: $(READY) ## of these, the ones that need no privilege: links through proxies
	$(UNPRIVILEGED) $(BIN)/python -m chaos drills --backend proxies $(DRILLS) --out drills-report/unprivileged

drills-planted: $(READY) ## nodes with planted bugs, each of which the drills must find
	$(BIN)/python -m chaos drills --planted --out drills-report/planted

drills-night: $(READY) ## the same faults drawn at random, one or two at a time, on 3 and on 5 nodes side by side: two hours
	@$(MAKE) --no-print-directory --jobs=2 --keep-going drills-night-3 drills-night-5

.PHONY: drills-night-3 drills-night-5
drills-night-3 drills-night-5: drills-night-%:
	$(BIN)/python -m chaos drills --nodes $* --minutes 120 --seed $(SEED) --out drills-report/night-$*

.PHONY: drills-regions
drills-regions: $(READY) ## five nodes in five regions of the world: latency, fail-over, judged by the checkers: about 8 minutes
	$(BIN)/python -m chaos drills regions --out drills-report/regions

drills-long: $(READY) ## long tests of single promises on real processes: about 40 minutes
	$(BIN)/python -m tests.drills.due_kills --kills 20
	$(BIN)/python -m tests.drills.outage
	$(BIN)/python -m tests.drills.workflow --jobs 10000
	$(BIN)/python -m tests.drills.http_effects
	$(BIN)/python -m tests.drills.cancel_races --rounds 1000
	$(BIN)/python -m tests.drills.catch_up
	$(BIN)/python -m tests.drills.ageing
	$(BIN)/python -m tests.drills.gaps
	$(BIN)/python -m tests.drills.raft_port_fuzz --frames 100000
	$(BIN)/python -m tests.drills.api_fuzz --requests 20000
	$(BIN)/python -m tests.drills.unreachable
	$(BIN)/python -m tests.drills.upgrade
	$(BIN)/python -m tests.drills.backup

backup-drill: $(READY) ## lose all nodes under load, and restore a backup
	$(BIN)/python -m tests.drills.backup

scale-drill: $(READY) ## a million jobs in 10,000 queues: the cost of each page of the dashboard, in rows read and CPU
	$(BIN)/python -m tests.drills.million

JOBS ?= 3000

container-drill: $(READY) ## the image, built and run as three nodes in containers, the leader killed under load
	$(BIN)/python -m tests.drills.container --jobs $(JOBS) --demo

PYINSTALLER := pyinstaller==6.22.3
BUILT := build/binary/env
PIP := $(PYTHON) -m pip --python $(BUILT)/bin/python install --quiet

binary: ## one file that needs no Python: build/raftsched
	rm -rf build/lib
	$(PYTHON) -m venv --clear --without-pip $(BUILT)
	$(PIP) --require-hashes --requirement configs/build.lock
	$(PIP) --require-hashes --no-build-isolation --requirement $(LOCK)
	$(PIP) --no-build-isolation --no-deps .
	$(PIP) $(PYINSTALLER)
	$(BUILT)/bin/pyinstaller --noconfirm --log-level ERROR --distpath build --workpath build/binary/work \
		configs/binary/raftsched.spec
	@ls -l build/raftsched

binary-demo: $(READY) binary ## the demo, by that file, where there is nothing but the C library
	$(BIN)/python -m tests.drills.binary build/raftsched

# `python3 -m venv` needs ensurepip, which Debian ships apart; pip itself can install into another environment.
$(READY): pyproject.toml
	$(PYTHON) -m venv .venv 2>/dev/null || $(PYTHON) -m venv --clear --without-pip .venv
	@if [ -x $(BIN)/pip ]; then $(BIN)/pip install --quiet --editable '.[dev]'; \
	else $(PYTHON) -m pip --python $(BIN)/python install --quiet --editable '.[dev]'; fi
	@touch $@

clean: ## remove the environment and all that was built
	rm -rf .venv build dist site *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
