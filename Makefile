# kx: `make run` shows the whole path, `make test` proves it. Neither needs a key, a GPU or a Mac.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP_QUIET := PIP_DISABLE_PIP_VERSION_CHECK=1 $(BIN)/python -m pip install --quiet
OFFLINE := HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1

.PHONY: run test check docs vectors clean

# torch comes first and alone, so that its pinned build is settled before anything asks for "torch".
$(VENV)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("kx needs Python 3.11 or newer; set PYTHON=...") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)
	$(PIP_QUIET) -c constraints.txt torch
	$(PIP_QUIET) -c constraints.txt -e '.[test,check]'
	touch $@

run: $(VENV)/.ready
	$(OFFLINE) $(BIN)/kx ingest corpus
	$(OFFLINE) $(BIN)/kx search --kernel mamba_scan
	$(OFFLINE) $(BIN)/kx show latest

test: $(VENV)/.ready
	$(OFFLINE) $(BIN)/python -m pytest -n auto --maxprocesses 8

check: $(VENV)/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(VENV)/.ready
	$(BIN)/python -m kx.cli.reference
	$(BIN)/python -m kx.cli.gallery

# Vectors of the curated knowledge, after it changed: without them the first question embeds what is new.
vectors: $(VENV)/.ready
	$(OFFLINE) $(BIN)/python -m retrieval.bundle

clean:
	rm -rf $(VENV) .kx build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
