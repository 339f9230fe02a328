# Every target works on a fresh machine: it makes .venv and installs what it needs first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check
EXTRAS := demo dev dist docs

.PHONY: demo test lint browser fuzz bench docs dist dist-test lock sbom clean

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

# What is uploaded to a package index: of `prunus` and of `prunus-runtime` a source distribution and a
# wheel, on Linux one that runs wherever its glibc is as new as this machine's.
dist: $(VENV)/.dist
	rm -rf dist
	$(BIN)/python -m build --no-isolation --outdir dist .
	$(BIN)/python -m build --no-isolation --outdir dist runtime
	case $$(uname) in Linux) cd dist && PATH=$(abspath $(BIN)):$$PATH && \
	  auditwheel repair --wheel-dir . *-linux_*.whl && rm -- *-linux_*.whl;; esac
	$(BIN)/twine check --strict dist/*

# In a clean environment and outside of the clone: what is in dist/ is installed by name, and does what
# README says.
dist-test: dist
	$(PYTHON) tools/try_distributions.py

# After a change of dependencies or of constraints.txt. Resolved as for macOS, where torch brings no
# packages of CUDA; hashes are those of the files for all systems. The locks have no torch: on our
# machines its small CPU wheel is a local file.
lock: $(VENV)/.dev
	$(PIP) uv
	for extra in $(EXTRAS); do \
	  printf 'hatchling\neditables\n' | MACOSX_DEPLOYMENT_TARGET=14.0 $(BIN)/uv pip compile \
	    pyproject.toml - --extra $$extra -c constraints.txt --python-version 3.11 \
	    --python-platform macos --generate-hashes --no-emit-package torch \
	    --no-emit-package prunus-runtime --no-annotate --quiet \
	    --custom-compile-command 'make lock' --output-file locks/$$extra.txt || exit 1; \
	done

# What the tests are installed with: versions and licences, as CycloneDX, and for people.
sbom: $(VENV)/.dev
	$(PYTHON) -m venv $(VENV)-sbom
	$(VENV)-sbom/bin/pip install --quiet --disable-pip-version-check cyclonedx-bom
	$(VENV)-sbom/bin/cyclonedx-py environment --pyproject pyproject.toml --output-file sbom.json \
	  $(BIN)/python
	$(BIN)/python tools/licences.py

clean:
	rm -rf $(VENV) $(VENV)-sbom sbom.json site dist

# One stamp for each extra that is installed; it is installed again when its lock or the native code
# changes. Every package but torch has to have one of the hashes of the lock.
$(VENV)/.%: locks/%.txt pyproject.toml runtime/pyproject.toml $(wildcard src/prunus_runtime/native/*)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) --no-deps -c constraints.txt torch
	$(PIP) --no-deps --require-hashes -r $<
	$(PIP) --no-deps --no-build-isolation -e runtime -e .
	touch $@
