# Every target works from a fresh clone with only Python >= 3.11 and make.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test slow check format docs bench fuzz mutants lowest clean federation-demo dist package-test changes release-check
demo: .venv/installed
	$(BIN)/python -m conovel.demo

# A coordinator, three sites and an operator as processes of their own, over mutual TLS.
federation-demo: .venv/dev
	$(BIN)/conovel federation demo

# Each worker of pytest has a core. Threads of OpenMP beside it wait for one another, and boosting
# takes twenty times as long.
ONE_THREAD := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1

# Coverage is printed: the modules with lines that no test reaches. From Python 3.12 on the
# interpreter counts lines itself, at little cost. On 3.11 counting doubles the time of the tests
# (measured on a part of them: 23 s and 49 s), so there it is done by request: COVER=--cov.
COUNTS := import sys; counts = sys.version_info >= (3, 12)
COVER ?= $$($(BIN)/python -c '$(COUNTS); print("--cov" if counts else "")')
CORE = COVERAGE_CORE=$$($(BIN)/python -c '$(COUNTS); print("sysmon" if counts else "ctrace")')
test: check
	$(CORE) $(ONE_THREAD) $(BIN)/python -m pytest -q -n 2 --no-loadscope-reorder $(COVER)

slow: .venv/dev
	$(ONE_THREAD) $(BIN)/python -m pytest -q -n 2 --no-loadscope-reorder -m slow

check: .venv/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python packaging/proofs.py check

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

# Changes one operator or constant of a module at a time: a test must fail each time. MODULES are
# modules of stats/ and deciding/, such as "stats.ranks deciding.cells"; all take hours. Survivors
# are printed at the end, and tests/mutants.md has a reason for each that may stay.
MODULES ?= stats.* deciding.*
mutants: .venv/mutants
	$(ONE_THREAD) HYPOTHESIS_PROFILE=mutants $(BIN)/mutmut run --max-children 2 $(foreach module,$(MODULES),'conovel.$(module).*')
	$(BIN)/mutmut results

# The lowest versions that pyproject.toml allows, in an environment of its own, and the tests of
# what depends on them most. The versions are pinned, and pip compares their hashes.
LOWEST := $(addprefix tests/,cli/test_cli.py runs/test_results.py models/wire scorers/test_automatic.py \
	runs/test_detector.py rows/test_tables.py stats/test_cells.py stats/test_ranks.py)
lowest: build/lowest/installed
	$(ONE_THREAD) HYPOTHESIS_PROFILE=mutants PYTHONPATH=src build/lowest/bin/python -m pytest -q -n 2 --no-loadscope-reorder $(LOWEST)

# The wheel and the sdist, made in an environment of its own. DIST is where they go.
DIST ?= dist
dist: build/env/installed
	rm -rf $(DIST)
	build/env/bin/python -m build --no-isolation --outdir $(DIST)
	build/env/bin/python -m twine check --strict $(DIST)/*

# Both are installed and used in clean environments of every interpreter that is found.
INTERPRETERS ?= python3.11 python3.12 python3.13 python3.14
package-test: dist
	build/env/bin/python packaging/try_package.py $(DIST) $(INTERPRETERS)

# The files of changes/ become the section of VERSION in CHANGELOG.md, and are deleted.
changes: build/env/installed
	build/env/bin/python -m towncrier build --yes --version $(VERSION)

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
	build/env/bin/python $(PIP) --report $@.json build hatchling towncrier twine
	$(CHECK_HASHES) $@.json
	@touch $@

build/lowest/installed: pyproject.toml packaging/lowest.txt
	$(PYTHON) -m venv build/lowest
	build/lowest/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r packaging/lowest.txt
	build/lowest/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation .
	build/lowest/bin/python -m pip check
	@touch $@

.venv/installed: EXTRA := fast
.venv/dev: EXTRA := dev
.venv/docs: EXTRA := docs
.venv/bench: EXTRA := bench
.venv/fuzz: EXTRA := fuzz
.venv/mutants: EXTRA := mutants
.venv/installed .venv/dev .venv/docs .venv/bench .venv/fuzz .venv/mutants: .venv/bin/python pyproject.toml constraints.txt hashes.txt
	PIP_CONSTRAINT=$(CURDIR)/constraints.txt $(BIN)/python $(PIP) --report $@.json -e '.[$(EXTRA)]'
	$(CHECK_HASHES) $@.json
	@touch $@
