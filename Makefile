PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/pip install -q --disable-pip-version-check -c constraints.txt

.DEFAULT_GOAL := help
.PHONY: help demo test check bench clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "%-7s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: .venv/.core  ## few-shot predictions on the built-in graph
	$(BIN)/python examples/quickstart.py

test: .venv/.dev  ## all tests
	$(BIN)/python -m pytest -n 2

check: .venv/.dev  ## lint, formatting and types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

bench: .venv/.dev  ## every benchmark
	@set -e; for script in $(filter-out benchmarks/measure.py,$(wildcard benchmarks/*.py)); do \
	  echo "== $$script"; $(BIN)/python $$script; done

clean:  ## remove the environment, caches and builds
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/.core: pyproject.toml constraints.txt | .venv/bin/python
	$(PIP) -e .
	@touch $@

# The development environment holds the core, so both stamps are fresh.
.venv/.dev: pyproject.toml constraints.txt | .venv/bin/python
	$(PIP) -e '.[dev]'
	@touch $@ .venv/.core
