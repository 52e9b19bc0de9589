# Two commands do everything: `make demo` shows what fedcollab does, `make test` proves it.

PYTHON ?= python3
BIN := .venv/bin
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Data sets: the user's choice, else the folder beside this checkout where there is one, else the cache folder.
SHARED := $(abspath ../shared/data)
ifneq ($(wildcard $(SHARED)),)
export FEDCOLLAB_DATA ?= $(SHARED)
endif

TESTS := -n 2 -q --doctest-modules src tests
FAST := not slow and not federation and not faults

.PHONY: demo test test-without-data test-with-data coverage test-slow test-federation test-newest-flower test-faults federation-demo lint bench \
        docs site clean browser data fuzz

demo: .venv/installed
	$(BIN)/fedcollab demo --out runs/demo

test: .venv/installed-dev browser data
	$(BIN)/pytest $(TESTS) -m "$(FAST)"

# The same tests in two parts, for CI: all of them as in a clone without data sets (an empty data folder and an empty
# cache), where those that need data skip; then only those, with the data sets that are to be had here.
test-without-data: .venv/installed-dev browser
	@empty=$$(mktemp -d) && trap 'rm -rf "$$empty"' EXIT && \
	FEDCOLLAB_DATA="$$empty" XDG_CACHE_HOME="$$empty" $(BIN)/pytest $(TESTS) -m "$(FAST)" $(COVERAGE)

test-with-data: .venv/installed-dev data
	$(BIN)/pytest -n 2 -q tests -m "dataset and $(FAST)"

# Prints which lines of the source no test reaches.
coverage: .venv/installed-dev browser data
	$(BIN)/pytest $(TESTS) -m "$(FAST)" --cov --cov-report=term-missing:skip-covered

test-slow: .venv/installed-dev browser data
	$(BIN)/pytest -q tests -m slow

federation-demo: .venv/installed
	@$(BIN)/pip install -q -e ".[flower]"
	$(BIN)/fedcollab federation demo --out runs/federation

test-federation: .venv/installed-dev
	$(BIN)/pytest -q tests/federation -m "federation and not faults"

# The newest Flower that is supported, laid over the installed one without what it asks for: not all of that can be had
# everywhere. Where it cannot be had itself, the line says so. FEDERATION=tests/federation tests processes with it too.
NEWEST := 1.42.0
test-newest-flower: .venv/installed-dev
	@if PIP_CONSTRAINT= $(BIN)/pip install -q --no-deps --upgrade --target build/flower-$(NEWEST) "flwr==$(NEWEST)"; \
	then PYTHONPATH="$(CURDIR)/build/flower-$(NEWEST)" $(BIN)/pytest -q tests/flower $(FEDERATION); \
	else echo "flwr $(NEWEST) is not to be had here: not tested with it"; fi

test-faults: .venv/installed-dev
	$(BIN)/pytest -q tests/federation tests/runs -m faults

lint: .venv/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/codespell README.md CONTRIBUTING.md CHANGELOG.md SECURITY.md docs src tests tools examples benchmarks

# 100,000 damaged files a reader (some 20 minutes); the tests feed 1,000.
fuzz: .venv/installed-dev
	$(BIN)/python tools/fuzz.py

bench: .venv/installed-dev data
	$(BIN)/python benchmarks/run.py

docs: .venv/installed-dev data
	$(BIN)/python tools/docs.py

# The documentation site in build/site: offline, and any warning (a broken link, a docstring that cannot be read) fails.
site: .venv/installed-docs
	$(BIN)/python tools/site.py
	@echo "open build/site/index.html"

clean:
	rm -rf .venv runs dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis

# A headless browser and the free data sets for the tests; where they cannot be had, those tests skip and say so.
browser: .venv/installed-dev
	@bash tools/browser.sh

data: .venv/installed
	@$(BIN)/fedcollab data get fashion-mnist --quiet || echo "fashion-mnist is not to be had here: its tests will skip"

.venv/pip:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "fedcollab needs Python 3.11 or newer")'
	$(PYTHON) -m venv .venv
	@touch $@

.venv/installed: .venv/pip pyproject.toml constraints.txt
	@echo "installing fedcollab and what it needs into .venv (some minutes the first time)"
	@$(BIN)/pip install -q -e ".[report]"
	@touch $@

.venv/installed-docs: .venv/installed-dev
	@echo "installing what the site needs into .venv"
	@$(BIN)/pip install -q -e ".[docs]"
	@touch $@

.venv/installed-dev: .venv/installed
	@echo "installing what the tests need into .venv"
	@$(BIN)/pip install -q -e ".[dev]"
	@touch $@
