# Two commands do everything on a machine with Python 3.11+, pip and make: `make run` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SPEC ?= specs/quick/poisson.toml
OUT ?= report

.PHONY: run test setup setup-dev lint clean help

help:
	@echo "make run    set up, then the quick main job on the CPU; ends in $(OUT)/index.html"
	@echo "make test   set up, then linters, types, import rules and all tests"
	@echo "make setup  make $(VENV) with hofno in it"
	@echo "make clean  remove $(VENV), $(OUT) and generated data"

run: setup
	$(BIN)/hofno run $(SPEC) --out $(OUT) --threads auto

test: setup-dev lint
	$(BIN)/python -m pytest -n 2

lint: setup-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright
	$(BIN)/lint-imports

setup: $(VENV)/.installed
setup-dev: $(VENV)/.installed-dev

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "hofno needs Python 3.11 or newer; set PYTHON=...")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable .
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@

clean:
	rm -rf $(VENV) $(OUT) .hofno runs
