# Every target works on a fresh machine: it makes .venv and installs what it needs first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo test lint browser fuzz bench docs clean

demo: $(VENV)/.demo
	$(BIN)/prunus demo

test: lint browser
	$(BIN)/pytest -n 2 --cov --cov-report=term

lint: $(VENV)/.dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

# The tests of pages need Debian's chromium, and are skipped where it cannot be had.
browser:
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || \
	  { test "$$(id -u)" = 0 && timeout 600 sh -c 'apt-get update -qq && \
	    DEBIAN_FRONTEND=noninteractive apt-get install -yqq --no-install-recommends chromium' \
	    >/dev/null 2>&1; } || \
	  echo "No chromium: the tests of pages are skipped. As root: apt-get install chromium"

# For as long as you like: make fuzz SECONDS=3600
SECONDS ?= 60
fuzz: $(VENV)/.dev
	$(BIN)/python tests/support/fuzz.py --seconds $(SECONDS)

bench: $(VENV)/.dev
	$(BIN)/python benchmarks/gate_overhead.py

docs: $(VENV)/.docs
	$(BIN)/mkdocs build --strict

clean:
	rm -rf $(VENV) site

# One stamp for each extra that is installed; it is installed again when its list or the native code
# changes.
$(VENV)/.%: pyproject.toml constraints.txt $(wildcard src/prunus_runtime/native/*)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) torch
	$(PIP) -e '.[$*]'
	touch $@
