# `make demo` counts the words of Hamlet; `make test` checks what a change is likely to break, `make test-all` everything,
# `make quick` what is short and takes no Spark, and `make versions` that on each other CPython that is here; `make docs`
# builds the documents' site. Each makes .venv first, from a bare Python.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin

# Tests and benchmarks start many processes: they load what others have compiled, also where the environment forbids it.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help demo test test-all lint quick versions versions-extras versions-spark docs bench nexmark noir cluster breakages kernel-checks deaths kills release clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 24

demo: .venv/demo ## counts the words of Hamlet
	$(BIN)/python examples/wordcount.py

test: lint .venv/kernel .venv/spark.jsa ## checks what is short, and smoke tests of what takes long
	$(BIN)/pytest -n 3 -m 'not kills and (not long or smoke)'

# PART: a number, for one of five parts of what `make test` leaves out.
PART ?=
test-all: .venv/test .venv/kernel .venv/spark.jsa ## all tests but kills; PART=3: a fifth of what test leaves out
	$(BIN)/pytest -n 3 $(if $(PART),--part $(PART))

lint: .venv/test ## ruff, mypy and the layers of imports
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/mypy examples/*.py
	$(BIN)/lint-imports

QUICK := -m 'not kills and not spark and not long'
quick: .venv/test .venv/kernel ## the tests that take no Spark and are not long
	$(BIN)/pytest -n 3 $(QUICK)

# The interpreters: python3.12 and newer in the PATH, and pyenv's. FILES: only these files and folders of tests, such as
# tests/core, which depend on the version most. It is no part of .ci/run: to install all for one takes some minutes.
FILES ?=
VERSIONS ?= $(foreach minor,12 13 14,python3.$(minor) $(lastword $(sort $(wildcard $(HOME)/.pyenv/versions/3.$(minor).*/bin/python))))
versions: ## quick, on each other CPython that is here
	@set -e; for python in $(VERSIONS); do \
	    version=$$($$python -c 'import platform; print(platform.python_version())' 2>/dev/null) || continue; \
	    case " $$seen " in *" $$version "*) continue;; esac; seen="$$seen $$version"; folder=.venv/versions/$$version; \
	    echo "CPython $$version"; \
	    $$python -m venv $$folder; \
	    $$folder/bin/pip install --quiet --editable '.[dev]'; \
	    $$folder/bin/pytest -n 2 $(QUICK) $(FILES); \
	    rm -rf $$folder; \
	done

EXTRAS ?=
versions-extras: .venv/test ## connectors with each version of their libraries: EXTRAS="duckdb --ends"
	$(BIN)/python tests/versions.py $(EXTRAS)

versions-spark: .venv/test ## smoke tests on Spark, with each version of PySpark that drift allows
	$(BIN)/python tests/versions.py pyspark

docs: .venv/docs ## the documents as a site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

bench: .venv/test .venv/kernel ## all benchmarks
	$(BIN)/python -m benchmarks

EVENTS ?= 100000
nexmark: .venv/test ## the queries of Nexmark, timed
	$(BIN)/python -m benchmarks.nexmark --events $(EVENTS)

SCALE ?= 1
noir: .venv/test ## the programs of the Noir papers, timed
	$(BIN)/python -m benchmarks.noir --scale $(SCALE)

ROWS ?= 12000
cluster: .venv/test ## a cluster of Spark on this machine, in which workers, files and tasks go wrong
	$(BIN)/python tests/cluster.py $(ROWS)

breakages: .venv/test .venv/kernel ## breaks the code on purpose: is each breakage caught?
	$(BIN)/python tests/breakages.py

CHECKS ?= 1000
kernel-checks: .venv/test .venv/kernel ## the kernel under a sanitizer, with drawn values, and where memory runs out
	$(BIN)/python tests/kernel_checks.py $(CHECKS)

DEATHS ?= 5000
deaths: .venv/test .venv/kernel ## lets processes of simulated runs die for minutes: SEED=7000 begins there
	$(BIN)/python tests/deaths.py $(DEATHS) $(if $(SEED),--seed $(SEED))

KILLS ?= 20
kills: .venv/test ## kills real processes for minutes
	$(BIN)/pytest -m kills
	$(BIN)/python tests/kills.py $(KILLS)
	$(BIN)/python tests/asked.py $(KILLS)

release: .venv/test ## the sdist and the pure wheel in dist/, checked and installed each in an empty environment
	$(BIN)/pip install --quiet build twine
	DRIFT_KERNEL=without $(BIN)/python -m build --outdir dist
	$(BIN)/twine check --strict dist/*
	@set -e; for file in dist/*.tar.gz dist/*-none-any.whl; do \
	    rm -rf .venv/release; $(BIN)/python -m venv .venv/release; \
	    .venv/release/bin/pip install --quiet "$$file"; \
	    .venv/release/bin/drift --version; \
	done; rm -rf .venv/release

clean: ## removes what make has made
	rm -rf .venv build dist site .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	rm -f kernel/drift_kernel/*.c kernel/drift_kernel/*.so
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The kernel is built in place by whatever installs the project, and again when a source of its own is newer.
KERNEL := hatch_build.py $(wildcard kernel/drift_kernel/*.pyx kernel/drift_kernel/*.h)
.venv/kernel: $(KERNEL) | .venv/bin/pip
	@$(BIN)/python -c 'import Cython, hatchling' 2>/dev/null || $(BIN)/pip install --quiet 'cython>=3.1' 'hatchling>=1.25'
	$(BIN)/python hatch_build.py
	touch $@

# A stamp for each set of extras; the project is installed editable, so that only its metadata can make a stamp old.
.venv/demo: pyproject.toml $(KERNEL) | .venv/bin/pip
	$(BIN)/pip install --quiet --editable .
	touch $@

.venv/test: pyproject.toml | .venv/bin/pip
	$(BIN)/pip install --quiet --editable '.[dev]'
	touch $@ .venv/demo .venv/docs

# Classes of Spark as its JVMs have loaded them, from which those of the tests start in half the time.
.venv/spark.jsa: .venv/test tests/spark_archive.py
	-$(BIN)/python tests/spark_archive.py $@

.venv/docs: pyproject.toml | .venv/bin/pip
	$(BIN)/pip install --quiet --editable '.[docs]'
	touch $@

.venv/bin/pip:
	@test -n "$(PYTHON)" || { echo "drift needs Python 3.11 or newer, and there is no python3 here; install it, or say make PYTHON=/path/to/python" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "drift needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1); say make PYTHON=/path/to/python" >&2; exit 1; }
	$(PYTHON) -m venv .venv || { rm -rf .venv; echo "$(PYTHON) cannot make .venv; on Debian install python3-venv" >&2; exit 1; }
	$(BIN)/pip install --quiet --upgrade pip
