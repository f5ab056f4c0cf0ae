# Every target works from a fresh clone with only Python >= 3.11 and make.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test slow check format docs bench fuzz clean federation-demo dist package-test release-check
demo: .venv/installed
	$(BIN)/python -m conovel.demo

# A coordinator, three sites and an operator as processes of their own, over mutual TLS.
federation-demo: .venv/dev
	$(BIN)/conovel federation demo

# Each worker of pytest has a core. Threads of OpenMP beside it wait for one another, and boosting
# takes twenty times as long.
ONE_THREAD := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1

test: check
	$(ONE_THREAD) $(BIN)/python -m pytest -q -n 2 --no-loadscope-reorder

slow: .venv/dev
	$(ONE_THREAD) $(BIN)/python -m pytest -q -m slow

check: .venv/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: .venv/dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Executes the pages of the gallery, where they or the package changed.
docs: .venv/docs
	$(ONE_THREAD) $(BIN)/python -m sphinx -W --keep-going -b html docs docs/_build/html

bench: .venv/bench
	$(BIN)/python -m benchmarks

# Bytes from a peer are hostile: mutate valid models, with coverage as the guide, and valid inputs
# of every format, with right checksums.
RUNS ?= 1000000
FORMAT_RUNS ?= 20000
fuzz: .venv/fuzz
	$(BIN)/python -m fuzz.run --runs $(FORMAT_RUNS)
	$(BIN)/python -m fuzz.decode -runs=$(RUNS)

# The wheel and the sdist, made in an environment of its own. DIST is where they go.
DIST ?= dist
dist: build/env/installed
	rm -rf $(DIST)
	build/env/bin/python -m build --no-isolation --outdir $(DIST)
	build/env/bin/python -m twine check --strict $(DIST)/*

# Both are installed and used in clean environments of every interpreter that is found.
INTERPRETERS ?= python3.11 python3.12 python3.13
package-test: dist
	build/env/bin/python packaging/try_package.py $(DIST) $(INTERPRETERS)

# The tag of a release, in the environment as TAG, is v and the version.
release-check:
	@$(PYTHON) -c 'import os, sys, tomllib; tag = "v" + tomllib.load(open("pyproject.toml", "rb"))["project"]["version"]; sys.exit(os.environ.get("TAG") != tag and "set TAG to " + tag)'

clean:
	rm -rf .venv docs/_build docs/_generated build dist

# One environment, one stamp for each set of extras.
.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "conovel needs Python 3.11 or newer; set PYTHON=python3.x")'
	$(PYTHON) -m venv .venv

# What pip installed is compared with hashes.txt before anything of it runs: the interpreter that
# compares is not that of the environment.
PIP := -m pip install --quiet --disable-pip-version-check -c constraints.txt
CHECK_HASHES := $(PYTHON) -I packaging/hashes.py check

build/env/installed: constraints.txt hashes.txt
	$(PYTHON) -m venv build/env
	build/env/bin/python $(PIP) --report $@.json build hatchling twine
	$(CHECK_HASHES) $@.json
	@touch $@

.venv/installed: EXTRA := fast
.venv/dev: EXTRA := dev
.venv/docs: EXTRA := docs
.venv/bench: EXTRA := bench
.venv/fuzz: EXTRA := fuzz
.venv/installed .venv/dev .venv/docs .venv/bench .venv/fuzz: .venv/bin/python pyproject.toml constraints.txt hashes.txt
	PIP_CONSTRAINT=$(CURDIR)/constraints.txt $(BIN)/python $(PIP) --report $@.json -e '.[$(EXTRA)]'
	$(CHECK_HASHES) $@.json
	@touch $@
