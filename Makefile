# Everything a person or CI does here. Needs Python 3.11+ with venv, and make.
#
#   make test                        all that CI runs
#   make pytest ARGS="tests/store"   a part of the tests
#   make test PYTHON=python3.13 VENV=.venv313
#   make test WORKERS=8              on a machine with more cores
#
# Each target sets up $(VENV) by itself; the stamp in it says that this was done since
# pyproject.toml changed last. Nothing but the package index is fetched.

PYTHON ?= python3
VENV ?= .venv
ARGS ?=
# So many run at once: tests wait for processes and clocks far more than they compute. WORKERS=0 for one
# after the other, as a debugger wants it.
WORKERS ?= 3
CHAOS_SECONDS ?= 600

STAMP := $(VENV)/.installed
RUN := $(VENV)/bin/python -m

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo limits test test-as-user cron-soak grafana pictures compare pytest soak lint \
  format typecheck layers bench chaos recovery rolling baseload systemd deploy whole-way man build clean

help: ## what there is to make
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(STAMP) ## run the main job by itself, in under two minutes
	$(VENV)/bin/python examples/demo.py $(ARGS)

test: lint typecheck layers pytest ## all that CI runs: lint, types, layers, tests

test-as-user: ## the same in a fresh clone as an ordinary user (root only)
	PYTHON="$(PYTHON)" bash .ci/as-user

cron-soak: $(STAMP) ## crons and leaders under faults, every zone; half an hour
	$(RUN) tests.system.cron_soak $(ARGS)

pytest: $(STAMP) ## the tests alone (ARGS="tests/store -k killed")
	$(RUN) pytest -n $(WORKERS) --dist loadfile -m "not slow" $(ARGS)

soak: $(STAMP) ## the tests that take minutes, and are left out of the others
	$(RUN) pytest -m slow $(ARGS)

lint: $(STAMP) ## style and format, nothing is changed
	$(RUN) ruff check .
	$(RUN) ruff format --check .

format: $(STAMP) ## mend style and format
	$(RUN) ruff check --fix .
	$(RUN) ruff format .

typecheck: $(STAMP) ## mypy, strict, on the product and on the tests
	$(RUN) mypy
	$(RUN) mypy tests examples

layers: $(STAMP) ## store <- workerproc <- supervisor <- cli, checked by import-linter
	$(VENV)/bin/lint-imports --no-cache

grafana: $(STAMP) ## dashboards and alerts: promtool, a real Prometheus, Grafana's types (npm)
	@command -v promtool >/dev/null && command -v prometheus >/dev/null || \
	  { echo "Prometheus's programs are not here: apt-get install prometheus"; exit 1; }
	$(RUN) pytest tests/grafana tests/supervisor/test_metrics.py $(ARGS)
	@command -v npm >/dev/null || { echo "npm is not here, so Grafana's types were not asked"; exit 1; }
	cd tests/grafana/typecheck && npm install --no-audit --no-fund --no-package-lock --silent && npm test --silent

limits: $(STAMP) ## what limits cost and how well they are kept, in some minutes (ARGS="--json")
	$(RUN) tests.system.limit_proofs $(ARGS)

pictures: $(STAMP) ## the dashboards as the README shows them, from a run of six minutes (npm, chromium)
	$(RUN) pip install --quiet --disable-pip-version-check --group pictures
	cd tests/grafana/pictures && npm install --legacy-peer-deps --no-audit --no-fund --no-package-lock --silent
	$(RUN) tests.grafana.pictures

bench: $(STAMP) ## measure this machine (ARGS="--jobs 20000 --json")
	$(VENV)/bin/jobctl bench $(ARGS)

compare: $(STAMP) ## jobctl and its peers when jobs go wrong (ARGS="--only jobctl,rq --json")
	$(RUN) tests.compare $(ARGS)

chaos: $(STAMP) ## ten minutes of faults, checked offline (CHAOS_SECONDS=60, ARGS="--seed 7")
	$(RUN) tests.chaos --seconds $(CHAOS_SECONDS) $(ARGS)

recovery: $(STAMP) ## how long until work goes on after each kind of death
	$(RUN) tests.chaos.recovery $(ARGS)

rolling: $(STAMP) ## what a deploy over three hosts costs, under 50 jobs a second; three minutes
	$(RUN) tests.system.rolling $(ARGS)

baseload: $(STAMP) ## ten minutes of a real day's peak on six hosts (ARGS="--seconds 120")
	$(RUN) tests.system.baseload $(ARGS)

systemd: $(STAMP) ## every story of the units, in a systemd of its own (root only); two minutes
	$(RUN) pytest tests/systemd $(ARGS)

deploy: $(STAMP) ## the recipes of examples/deploy, with Ansible and Kubernetes' schema (root only)
	$(RUN) pip install --quiet --disable-pip-version-check --group deploy
	$(RUN) pytest tests/packaging/test_deploy.py tests/systemd/test_container.py \
	  tests/systemd/test_ansible.py $(ARGS)

whole-way: $(STAMP) ## units, load, deploys, a hang, an OOM, Prometheus, Alertmanager; minutes (root only)
	$(RUN) pytest -rP tests/systemd/test_whole_way.py $(ARGS)

man: $(STAMP) ## the manual page, from the commands; see it with man -l src/jobctl/assets/man/jobctl.1
	$(RUN) jobctl.cli.manual

build: $(STAMP) ## wheel and sdist, into dist/
	$(RUN) build

clean: ## remove what was made here, the virtual environment included
	rm -rf $(VENV) build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# pip learned --group in 25.1; the one that a venv begins with is as old as its Python.
$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and \
	  "jobctl needs Python 3.11 or newer; $(PYTHON) is %d.%d. Say make PYTHON=..." % sys.version_info[:2])'
	$(PYTHON) -m venv $(VENV)
	$(RUN) pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	$(RUN) pip install --quiet --editable '.[embedded]' --group dev
	@touch $@
