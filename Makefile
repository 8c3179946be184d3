# Two commands on a machine that has only Python 3.11+ and make:
#   make demo    trains the embedded 135M model on the documentation-search agent
#   make test    format, lint, types, import rules, tests
# Each makes its own virtual environment below, and installs again only when
# pyproject.toml or constraints.txt changed.

PYTHON ?= python3
DEMO_ARGS ?=

.PHONY: demo test test-full lint docs clean

demo: .venv-demo/installed
	.venv-demo/bin/art demo $(DEMO_ARGS)

test: lint
	.venv/bin/python -m pytest -m "not long" -n 2 --dist loadfile

test-full: lint
	.venv/bin/python -m pytest

lint: .venv/installed
	.venv/bin/ruff format --check
	.venv/bin/ruff check
	.venv/bin/lint-imports
	.venv/bin/pyright --pythonpath .venv/bin/python

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	.venv/bin/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

.venv-demo/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-demo
	.venv-demo/bin/python -m pip install --quiet --constraint constraints.txt --editable '.[train]'
	touch $@

clean:
	rm -rf .venv .venv-demo build dist
