# make demo, make test: all that a fresh machine needs (Python 3.11 to 3.13 with venv, make, git). make help: the rest.
PYTHON ?= python3
VENV ?= .venv
BASE ?= HEAD
CONSTRAINTS ?= constraints.txt
INSTALLED := $(VENV)/.installed
BIN := $(VENV)/bin
# the files with tests of a mark: to collect all of tests/ takes every worker a quarter of a minute
marked = $(sort $(shell grep -rlE 'mark\.$(1)\b' tests --include='*.py'))
# without bytecode on the disk, every process that a test starts would compile raysim, and pytest all tests, anew
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help install demo test test-all lint check format docs site site-version wheel twins bits golden clean

help: ## say what there is
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 12

install: $(INSTALLED) ## install raysim and its development tools into .venv; CONSTRAINTS= takes the newest versions

$(INSTALLED): pyproject.toml $(CONSTRAINTS)
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "raysim needs Python 3.11 or newer; make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet $(if $(CONSTRAINTS),--constraint $(CONSTRAINTS)) --editable '.[dev]'
	@touch $@

demo: $(INSTALLED) ## run the quickstart and print the accuracy matrix
	$(BIN)/raysim run configs/quickstart.yaml

test: $(INSTALLED) ## run the suite, without the tests of long repetition and with a sample of the grid of pairs of methods
	$(BIN)/python -m pytest -n auto -m "not ray and not grid and not soak"
	$(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder -m "ray and not soak" $(call marked,ray)

test-all: test ## the same, the whole grid of pairs, and the tests of long repetition
	$(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder -m "grid or soak" $(call marked,(grid|soak))

lint: $(INSTALLED) ## format, lint, types, English
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python tools/english.py

check: lint ## the same, and the tests that need no Ray
	$(BIN)/python -m pytest -n auto -m "not ray and not slow and not grid and not soak"

format: $(INSTALLED) ## put the code into its format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(INSTALLED) ## write what is generated in docs/: config.md, command_line.md, the methods' keys, the tables of choose.md, claims.md, methods/ and results/
	$(BIN)/python tools/config_reference.py
	$(BIN)/python tools/command_reference.py
	$(BIN)/python tools/leaderboard_page.py
	$(BIN)/python tools/leaderboard_notes.py
	$(BIN)/python tools/method_chooser.py
	$(BIN)/python tools/method_table.py
	$(BIN)/python tools/prose_numbers.py
	$(BIN)/python tools/matrix_tables.py
	$(BIN)/python tools/claims_page.py
	$(BIN)/python tools/provenance.py

site: $(INSTALLED) ## write the documentation as a site into site/, the gallery's figures made anew, and look at it
	$(BIN)/python tools/gallery.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build
	$(BIN)/python tools/site_check.py

site-version: $(INSTALLED) ## add the site of VERSION=1.0 to the branch gh-pages, as the latest; nothing is pushed
	$(if $(VERSION),,$(error found no VERSION, allowed: MAJOR.MINOR, such as make site-version VERSION=1.0))
	$(BIN)/python tools/gallery.py
	NO_MKDOCS_2_WARNING=1 PATH="$(abspath $(BIN)):$$PATH" $(BIN)/mike deploy --update-aliases $(VERSION) latest
	NO_MKDOCS_2_WARNING=1 $(BIN)/mike set-default latest

wheel: $(INSTALLED) ## build the sdist, and from it the wheel, into dist/
	$(BIN)/python -m build --no-isolation --outdir dist .

twins: $(INSTALLED) ## run methods against references in plain torch, and write the table of docs/twins.md
	PYTHONPATH=tools $(BIN)/python -m twins --page docs/twins.md

bits: $(INSTALLED) ## does a bit of any run differ between BASE=COMMIT and this tree? ONLY=PATTERN and NO_RAY=1 run fewer
	PYTHONPATH=tools $(BIN)/python -m bits $(BASE) $(if $(ONLY),--only '$(ONLY)') $(if $(NO_RAY),--no-ray)

golden: $(INSTALLED) ## write the hashes of the golden runs in tests/golden/ anew, and say what CHANGELOG.md has to name
	PYTHONPATH=tools $(BIN)/python -m golden

clean: ## remove the environment and what tools leave
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .bits .newest .sbom build dist site .gallery *.egg-info
