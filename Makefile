.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c

PYTHON ?= python3
TORCH ?= torch==2.13.0
SECONDS_EACH ?= 60
SIZE ?= large
SECONDS_OF_CHAOS ?= 180
OUT ?= var/bench-gpu
BUDGET ?= 2400
VENV := .venv
BIN := $(VENV)/bin
# Compiled once, not again by each of the processes that tests start.
unexport PYTHONDONTWRITEBYTECODE
# Nothing of a run remains, however it ends.
CONTAINED := $(BIN)/python tests/contained.py
# A thread a process: two processes of two threads each wait for each other four times as long.
TESTS := OMP_NUM_THREADS=1 $(CONTAINED) $(BIN)/python -m pytest
SUITES := cd payload && OMP_NUM_THREADS=1 ../$(BIN)/python ../tests/contained.py ../$(BIN)/python -m pytest -n 2 --dist loadfile --no-header -q
# The payload's numbers against their references: a minute of its suites.
CORE := $(addprefix suites/test_,moe_numeric.py attention_numeric.py custom_kernels_numeric.py gpt2_numeric.py fp8_native_numeric.py train_numeric.py)
PIP := $(BIN)/python -m pip --disable-pip-version-check --retries 10 --timeout 60 install --constraint constraints.txt
# What asks a registry is tried once again after a pause.
twice = $(1) || { echo 'failed; once again in 30 s' >&2; sleep 30; $(1); }
EXTRAS := payload,aws,gcp
ALL_EXTRAS := $(EXTRAS),oidc,postgres,statistics,test,check
DOCS_EXTRAS := $(EXTRAS),docs

help: ## Show what there is
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: $(VENV)/.run ## Validate the built-in payload on this computer: install, run, report
	$(BIN)/seatrial run matrices/local.yaml

install: $(VENV)/.test ## The environment with all that tests and checks import

test: $(VENV)/.test ## What needs Python alone, in minutes; says at its end what it left out
	$(SUITES) $(CORE)
	$(TESTS) -n 3 --dist loadfile --part quick tests

test-rest: $(VENV)/.test ## What `make test` leaves out: Postgres, browsers, SSH hosts, whole runs, the payload's other suites
	tests/system-packages.sh
	$(TESTS) -n 3 --dist loadfile --part rest tests # they wait for processes much of the time
	$(SUITES) $(addprefix --ignore=,$(CORE)) suites

test-all: test test-rest ## Every test; as root on Debian, what they need is installed first

check: $(VENV)/.test ## Format, lint, types, import rules, migrations, sizes
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -q --part quick tests/unit/test_code_style.py tests/integration/test_migrations.py

bench: $(VENV)/.test ## Benchmarks: shipping, overhead, evidence, load, ingest, failures, foreign; the payload against itself and its speed-up thresholds (up to 40 minutes)
	tests/system-packages.sh
	$(BIN)/python -m benchmarks.shipping
	$(BIN)/python -m benchmarks.overhead
	$(BIN)/python -m benchmarks.evidence
	$(BIN)/python -m benchmarks.load
	$(BIN)/python -m benchmarks.side_by_side
	$(BIN)/python -m benchmarks.ingest
	$(BIN)/python -m benchmarks.failures
	$(BIN)/python -m benchmarks.foreign_results
	PYTHONPATH=payload OMP_WAIT_POLICY=PASSIVE $(BIN)/python benchmarks/bench_core_fairness.py
	cd payload && OMP_WAIT_POLICY=PASSIVE ../$(BIN)/python -m benchmarks.cpu_speedup_thresholds

bench-gpu: $(VENV)/.run ## Correctness, then every target on this machine's GPU, for BUDGET seconds: one JSON file and one page in OUT; again: what is missing
	cd payload && ../$(BIN)/python -m benchmarks.gpu --budget $(BUDGET) --out $(abspath $(OUT)) $(ARGS)

bench-dashboard: $(VENV)/.test ## Every page over a million results on Postgres (SIZE=full: ten million) and half a million on SQLite
	tests/system-packages.sh
	$(BIN)/python -m benchmarks.dashboard --size $(SIZE)

house: $(VENV)/.test ## Size and shape of the code: files, lines, record classes that look alike, circles
	$(BIN)/python -m benchmarks.house

gate-power: $(VENV)/.test ## False alarms and power of the gate, computed and written into docs/explanation/statistics.md (up to 20 minutes)
	$(BIN)/python -m benchmarks.gate_power

mutants: $(VENV)/.run ## Plant every breakage into the payload: its suites must go red on each (up to 40 minutes)
	$(BIN)/python -m tests.mutants

mutants-product: $(VENV)/.test ## Plant the sampled mutants into the product: the tests of its lines must go red as before (up to 40 minutes); ARGS='reports'
	$(CONTAINED) $(BIN)/python -m tests.mutants.product $(ARGS)

adversary: $(VENV)/.test ## Tell every lie to the product: none may have a PASS but the inherent ones (up to 40 minutes); ARGS='--sample 10'
	tests/system-packages.sh
	$(CONTAINED) $(BIN)/python -m tests.adversary $(ARGS)

fuzz: $(VENV)/.test ## Fuzz every dialect, guided by coverage, for SECONDS_EACH
	$(BIN)/python -m tests.fuzz $(SECONDS_EACH) $(DIALECTS)

fuzz-rest: $(VENV)/.test ## Drawn requests to every operation of REST, and chains of them, by five roles on both databases (10 minutes)
	$(PIP) --quiet --no-deps --upgrade --target var/schemathesis schemathesis harfile hypothesis-graphql jsonschema-rs pyrate-limiter
	PYTHONPATH=var/schemathesis $(TESTS) -q -s tests/integration/rest_by_role.py

chaos: $(VENV)/.test ## Kill and stop controllers at random moments for SECONDS_OF_CHAOS: no machine is left, no result lost or doubled (3 minutes)
	$(CONTAINED) $(BIN)/python -m tests.chaos $(SECONDS_OF_CHAOS) $(SEED)

lab: $(VENV)/.test ## Three emulated clouds, real machines behind their addresses (up to 20 minutes; root on Debian)
	tests/system-packages.sh
	$(call twice,$(BIN)/python -m tests.lab.image --torch '$(TORCH)')
	$(call twice,$(BIN)/python -m tests.lab.wheels)
	$(BIN)/python -m tests.lab.seal -- $(BIN)/python -m pytest tests/lab

lab-release: $(VENV)/.test ## The lab's one happy release only
	tests/system-packages.sh
	$(call twice,$(BIN)/python -m tests.lab.image --torch '$(TORCH)')
	$(call twice,$(BIN)/python -m tests.lab.wheels)
	$(BIN)/python -m tests.lab.seal -- $(BIN)/python -m pytest tests/lab/test_release.py

lab-shell: $(VENV)/.test ## A shell in the lab: rent machines of emulated clouds without an account (root on Debian)
	tests/system-packages.sh
	$(call twice,$(BIN)/python -m tests.lab.image --torch '$(TORCH)')
	$(call twice,$(BIN)/python -m tests.lab.wheels)
	$(BIN)/python -m tests.lab.seal -- $(BIN)/python -m tests.lab.shell

cloud-smoke: $(VENV)/.clouds ## One cheapest cell on each cloud you have an account with; prints its price and asks first
	$(BIN)/python -m tests.cloud_smoke $(ARGS)

first-contact: $(VENV)/.clouds ## Fifteen calls that settle what is assumed of the clouds; each says its price and asks; ARGS='aws' for one cloud
	$(BIN)/python -m tests.first_contact $(ARGS)

release: $(VENV)/.release ## The wheel, and what was tested with it as a CycloneDX SBOM, into build/release
	rm -rf build/release
	$(BIN)/python -m build --wheel --outdir build/release
	$(BIN)/cyclonedx-py requirements constraints.txt --pyproject pyproject.toml --output-reproducible --output-file build/release/seatrial.cdx.json

audit: $(VENV)/.release ## Known vulnerabilities of the pinned versions (asks pypi.org for each of them)
	@mkdir -p build && rm -f build/audit.json
	@$(BIN)/pip-audit --requirement constraints.txt --no-deps --disable-pip --progress-spinner off \
	    --format json --output build/audit.json || { test -s build/audit.json && \
	    echo 'VULNERABLE: see build/audit.json' || echo 'NOT AUDITED: pypi.org could not be asked'; exit 1; }
	@echo 'AUDITED: nothing known'

format: $(VENV)/.test ## Format the code and mend what can be mended
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(VENV)/.docs ## Write the generated reference pages again and build the site into build/site; links are checked
	$(BIN)/python -m docs.generate_reference
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo 'Read it: $(BIN)/python -m http.server --bind 127.0.0.1 --directory build/site 8000'

vendor: $(VENV)/.run ## Fetch again what the web faces take from npm (needs npm), at the locked versions
	$(BIN)/python -m tests.browser.vendoring

clean: ## Remove the environment and everything that was run
	rm -rf $(VENV) var .lab .mypy_cache .ruff_cache .pytest_cache

$(VENV)/.run: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make run PYTHON=python3.11")'
	@echo 'Into $(VENV), once: $(TORCH) (the build for CPUs 0.2 GB, one for GPUs some GB), then'
	@echo 'Seatrial and what the payload needs: about 90 packages, 0.5 GB. pip shows each:'
	$(PYTHON) -m venv $(VENV)
	$(call twice,$(PIP) $(TORCH))
	$(call twice,$(PIP) --editable '.[payload]')
	touch $@

$(VENV)/.clouds: $(VENV)/.run
	$(call twice,$(PIP) --quiet --editable '.[$(EXTRAS)]')
	touch $@

$(VENV)/.test: $(VENV)/.run
	$(call twice,$(PIP) --quiet --editable '.[$(ALL_EXTRAS)]')
	touch $@

$(VENV)/.release: $(VENV)/.run
	$(PIP) --quiet --editable '.[$(EXTRAS),release]'
	touch $@

$(VENV)/.docs: $(VENV)/.run
	$(call twice,$(PIP) --quiet --editable '.[$(DOCS_EXTRAS)]')
	touch $@

.PHONY: help run install test test-rest test-all check bench bench-gpu bench-dashboard chaos house gate-power mutants mutants-product adversary fuzz fuzz-rest lab lab-release lab-shell cloud-smoke first-contact release audit format docs vendor clean
