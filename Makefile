# make demo   a complete analysis of real data on this machine (ARGS="--preset smoke" changes it)
# make test   the test suite (ARGS="tests/cluster -k doctor" picks from it)
# make venv   only .venv, with everything for development
#
# Each makes .venv first if there is none, and installs again only after pyproject.toml or
# constraints.txt changed. PYTHON=... chooses the interpreter of a new .venv.

SHELL := /bin/bash

# The first Python 3.11 or 3.12 that can make virtual environments. A command of that name can be
# a shim without an interpreter behind it, or lack ensurepip, so each is tried.
PYTHON ?= $(shell for p in python3.11 python3.12 python3; do \
	$$p -c 'import sys, venv, ensurepip; sys.exit(sys.version_info[:2] not in ((3, 11), (3, 12)))' \
	2>/dev/null && echo $$p && break; done)

.PHONY: demo test venv
.DELETE_ON_ERROR:

demo: .venv/.econ
	.venv/bin/corymb demo $(ARGS)

test: .venv/.dev
	.venv/bin/python -m pytest $(ARGS)

venv: .venv/.dev

.venv/bin/pip:
	@python="$(PYTHON)"; \
	[ -n "$$python" ] || { echo "corymb needs Python 3.11 or 3.12 with venv; none found" >&2; exit 1; }; \
	set -x; $$python -m venv .venv

.venv/.econ: pyproject.toml constraints.txt | .venv/bin/pip
	.venv/bin/pip install --quiet --constraint constraints.txt --editable '.[econ]'
	@touch $@

# [dev] holds [econ].
.venv/.dev: pyproject.toml constraints.txt | .venv/bin/pip
	.venv/bin/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch .venv/.econ $@
