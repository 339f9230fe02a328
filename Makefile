# Every target works on a fresh machine: it makes .venv and installs what it needs first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo test lint bench docs clean

demo: $(VENV)/.demo
	$(BIN)/prunus demo

test: lint
	$(BIN)/pytest -n 2 --cov --cov-report=term

lint: $(VENV)/.dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

bench: $(VENV)/.dev
	$(BIN)/python benchmarks/gate_overhead.py

docs: $(VENV)/.docs
	$(BIN)/mkdocs build --strict

clean:
	rm -rf $(VENV) site

# One stamp for each extra that is installed; an extra is installed again when its list changes.
$(VENV)/.%: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) torch
	$(PIP) -e '.[$*]'
	touch $@
