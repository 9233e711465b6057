# OmniStage's tasks, one command each; `make help` lists them. Each task first sets up what it needs:
# an environment for the runtime (.venv) and, where it applies, a ComfyUI (.comfyui), two headless
# clients (.clients) and a browser driver. What is there already is not touched again.
#
#   PYTHON=...    the Python 3.11 that makes the environments
#   COMFYUI=...   a ComfyUI folder of your own to use; COMFYUI_PYTHON=... its Python
#   ARGS=...      further options for pytest, the demo, the server or the benchmark

PYTHON ?= python3.11
ARGS ?=
BENCH ?= engine
TINY := .bench/checkpoints

PY := .venv/bin/python
PIP_INSTALL := -m pip install --quiet --disable-pip-version-check

# A stamp's name carries the hash of its inputs, so that a checkout that only touches files is free.
hash = $(shell cat $(1) | sha256sum | cut -c1-16)
LOCK := locks/$(if $(shell command -v nvidia-smi),cuda,cpu).txt
VENV_READY := .venv/ready-$(call hash,$(LOCK) pyproject.toml)
CLIENTS_READY := .clients/ready-$(call hash,locks/clients.txt)
BROWSER_READY := tests/browser/node_modules/ready-$(call hash,tests/browser/package-lock.json)

# Tests run commands in folders of their own, so all paths are absolute.
ifdef COMFYUI
override COMFYUI := $(abspath $(COMFYUI))
COMFYUI_VENVS := $(wildcard $(addprefix $(COMFYUI)/,venv/bin/python .venv/bin/python))
COMFYUI_PYTHON ?= $(firstword $(COMFYUI_VENVS) $(PYTHON))
else
COMFYUI := $(CURDIR)/.comfyui/ComfyUI
COMFYUI_PYTHON := $(CURDIR)/.comfyui/venv/bin/python
COMFYUI_READY := comfyui
endif
CLIENTS_PYTHON := $(CURDIR)/.clients/bin/python
export COMFYUI COMFYUI_PYTHON CLIENTS_PYTHON
# Importing vLLM anew costs half a minute where its byte code may not be kept.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup demo serve test quick e2e check format bench comfyui clean

help: ## show this list
	@grep -hE '^[a-z0-9]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: $(VENV_READY) $(COMFYUI_READY) ## make the environments only

demo: $(VENV_READY) $(COMFYUI_READY) ## show what the runtime does for a real ComfyUI
	$(PY) -m omnistage.runtime demo --comfyui $(COMFYUI) $(ARGS)

serve: $(VENV_READY) ## start the runtime
	$(PY) -m omnistage.runtime serve $(ARGS)

test: $(VENV_READY) $(COMFYUI_READY) $(CLIENTS_READY) $(BROWSER_READY) ## run all tests
	$(PY) -m pytest -m ar $(ARGS)
	$(PY) -m pytest -m "not ar" $(ARGS)

quick: $(VENV_READY) ## run the tests that need no ComfyUI
	$(PY) -m pytest -m ar $(ARGS)
	$(PY) -m pytest -m "not ar and not e2e and not browser" $(ARGS)

e2e: $(VENV_READY) $(COMFYUI_READY) $(CLIENTS_READY) $(BROWSER_READY) ## run the tests with ComfyUI
	$(PY) -m pytest -m "e2e or browser" $(ARGS)

check: $(VENV_READY) ## lint, format check, types, layers
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	.venv/bin/lint-imports

format: $(VENV_READY) ## fix what ruff can fix
	.venv/bin/ruff check --fix .
	.venv/bin/ruff format .

bench: $(VENV_READY) $(if $(filter queue,$(BENCH)),$(COMFYUI_READY)) ## run a benchmark: BENCH=ar|engine|families|memory|mixed|policy|queue|residency|speech
	$(if $(filter families,$(BENCH)),$(PY) -m omnistage.tests.fakes.checkpoints $(TINY))
	$(PY) -m omnistage.runtime bench $(BENCH) $(if $(filter families,$(BENCH)),--checkpoints $(TINY)) $(ARGS)

clean: ## remove the environments, caches and build results
	rm -rf .venv .comfyui .clients .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
	rm -rf build dist omnistage.egg-info tests/browser/node_modules
	find . -name __pycache__ -prune -exec rm -rf {} +

comfyui:
	@$(PYTHON) tests/comfyui/install.py .comfyui

$(VENV_READY): | $(PY)
	@# The lock is the whole environment, and leaves out dependencies that are not wanted.
	$(PY) $(PIP_INSTALL) --no-deps --no-compile --requirement $(LOCK)
	@# What a torch built for CUDA needs is not in the lock for CPUs.
	$(PY) $(PIP_INSTALL) --no-compile --constraint $(LOCK) torch
	$(PY) $(PIP_INSTALL) --no-deps --no-build-isolation --editable .
	@# mypy looks here to see this folder under the package's name (pyproject.toml).
	mkdir -p .venv/src && ln -sfn ../.. .venv/src/omnistage
	@rm -f .venv/ready-* && touch $@

$(PY):
	$(PYTHON) -m venv .venv

$(CLIENTS_READY):
	$(PYTHON) -m venv --clear .clients
	.clients/bin/python $(PIP_INSTALL) --no-deps --requirement locks/clients.txt
	@touch $@

$(BROWSER_READY):
	npm ci --prefix tests/browser --no-audit --no-fund
	@touch $@
