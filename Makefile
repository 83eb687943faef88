PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/pip install -q --disable-pip-version-check -c constraints.txt

FLOORED_EXTRAS := rdf,download,track,plots,pandas,polars,networkx,serve,mcp,neo4j,cluster
FLOORED_TOOLS := httpx hypothesis jsonschema lxml pyarrow pytest pytest-xdist rdflib stix2
FLOORED_TESTS := --ignore-glob='*_in_chromium.py' $(addprefix tests/,core graph curation bridges server cli)

.DEFAULT_GOAL := help
.PHONY: help demo test quick long floors check docs fuzz clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "%-7s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: .venv/.core  ## predictions on MITRE ATT&CK from three examples (15 seconds, no training)
	@$(BIN)/python examples/attack.py

test: .venv/.dev  ## run all tests but the longest
	$(BIN)/python -m pytest -n 2

quick: .venv/.dev  ## run the tests that are not marked slow
	$(BIN)/python -m pytest -n 2 -m "not slow and not long"

long: .venv/.dev  ## run the tests that take a minute or more
	$(BIN)/python -m pytest -n 2 -m long

floors: .venv/floors/.done  ## run tests with the lowest versions that pyproject.toml allows
	.venv/floors/bin/python -m pytest -n 2 -m "not slow and not long" $(FLOORED_TESTS)

check: .venv/.dev  ## check style, formatting and types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

docs: .venv/.dev  ## fill in figures from stored records, and build the site in build/site
	$(BIN)/python docs/generate.py
	$(BIN)/python -m sphinx -q -W --keep-going -b html -d build/doctrees docs build/site
	@echo "the site: build/site/index.html"

fuzz: .venv/.dev  ## read damaged files: ten minutes of atheris, and 20,000 files with a second parser
	$(PIP) atheris
	$(BIN)/python benchmarks/fuzz.py --guided
	$(BIN)/python benchmarks/differential.py

clean:  ## remove the environment, caches and builds
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/.core: pyproject.toml constraints.txt | .venv/bin/python
	@echo "installing fewlink and torch into .venv: about a minute"
	$(PIP) -e .
	@touch $@

# The development environment holds the core, so both stamps are fresh.
.venv/.dev: pyproject.toml constraints.txt | .venv/bin/python
	@echo "installing fewlink with what its tests need into .venv: a minute or two"
	$(PIP) -e '.[dev]'
	@touch $@ .venv/.core

.venv/floors/.done: pyproject.toml floors.txt
	@echo "installing the lowest versions into .venv/floors: a few minutes"
	rm -rf .venv/floors
	$(PYTHON) -m venv .venv/floors
	.venv/floors/bin/pip install -q --disable-pip-version-check -c floors.txt -e '.[$(FLOORED_EXTRAS)]' $(FLOORED_TOOLS)
	@touch $@
