# `make` alone prints what there is.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
LOCKS := requirements/runtime.lock requirements/dev.lock
TOOLS ?= .tools
UV_VERSION := 0.13.8

.PHONY: help
help: ## this text
	@awk 'BEGIN {FS = ":.*## "} /^[a-z0-9-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo
	@echo "  PYTHON=python3.12 make venv   uses another interpreter (3.11 or newer)"

.PHONY: venv
venv: $(STAMP) ## the virtual environment .venv, from the locked versions

# The stamp holds the interpreter's version and a digest of the locks, so a changed lock or interpreter makes it anew.
$(STAMP): $(LOCKS) pyproject.toml
	@./requirements/make-venv "$(PYTHON)" "$(VENV)"
