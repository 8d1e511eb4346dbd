# Two commands for a newcomer: `make run` and `make test`. Needs Python 3.11 or later with venv, and nothing else.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: run test check setup clean bench

run: $(VENV)/.installed          ## simulate the quickstart federation
	$(BIN)/fedslice simulate configs/quickstart.toml

test: $(VENV)/.installed-dev     ## all tests
	$(BIN)/python -m pytest -q

check: $(VENV)/.installed-dev    ## style, types, who may import whom, sizes
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -q tests/unit/test_house.py

setup: $(VENV)/.installed-dev    ## everything for developing

bench: $(VENV)/.installed-dev    ## speed against peers; installs the peers
	$(BIN)/python -m pip install --quiet --editable '.[bench]'
	$(BIN)/python -m tests.bench.simulate
	$(BIN)/python -m tests.bench.timing
	$(BIN)/python -m tests.bench.slicing

clean:                           ## remove what was installed and cached, but no runs
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache build dist *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or later is needed; set PYTHON=..."; exit 2; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo "Python's venv is needed: on Debian, apt install python3-venv"; exit 2; }

$(VENV)/.installed: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

$(VENV)/.installed-dev: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@ $(VENV)/.installed
