# Each target makes the virtual environment that it needs. PYTHON is any Python from 3.11 on.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
WORKERS ?= auto

.PHONY: demo test lint bench bench-full format clean

demo: $(VENV)/installed
	$(BIN)/python examples/quick_start/quick_start.py
	$(BIN)/python examples/quick_start/digits.py
	$(BIN)/python examples/parallel/clients.py
	PYTHON=$(BIN)/python examples/distributed/run_by_rank_table.sh
	$(BIN)/python examples/megengine_quick_start/inference.py examples/megengine_digits/digits.mge
	$(BIN)/python examples/megengine_quick_start/digits.py

test: $(VENV)/developed
	$(BIN)/python -m pytest -n $(WORKERS)

lint: $(VENV)/developed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/developed
	$(BIN)/python -m benchmarks suite --short
	$(BIN)/python -m benchmarks overhead

bench-full: $(VENV)/developed
	$(BIN)/python -m benchmarks

format: $(VENV)/developed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Litehouse needs Python 3.11 or newer; set PYTHON=...")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/installed: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

$(VENV)/developed: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $(VENV)/installed $@

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
