# The commands of README and .ci/run under short names; VENV may point at another environment.
VENV ?= .venv
PYTHON ?= python3

.PHONY: demo test lint hunt slow ci

$(VENV)/.dev: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/pip install --quiet uv
	VIRTUAL_ENV=$(abspath $(VENV)) $(VENV)/bin/uv pip install --quiet -e '.[dev]'
	touch $@

$(VENV)/.bench: pyproject.toml $(VENV)/.dev
	VIRTUAL_ENV=$(abspath $(VENV)) $(VENV)/bin/uv pip install --quiet -e '.[bench]'
	touch $@

demo: $(VENV)/.dev
	$(VENV)/bin/compactor demo

test: $(VENV)/.dev
	$(VENV)/bin/pytest -n auto

lint: $(VENV)/.bench
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

SECONDS ?= 600
hunt: $(VENV)/.bench
	HYPOTHESIS_PROFILE=random $(VENV)/bin/pytest -n auto --real
	$(VENV)/bin/python -m tests.hunt --seconds $(SECONDS)

slow:
	bash .ci/run --slow

ci:
	bash .ci/run
