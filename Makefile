# make demo : a first run with a report, in a few minutes
# make test : the test suite; make test ARGS="tests/cluster -k session" runs part of it
# Each first makes .venv and installs what it needs there, once: again only when pyproject.toml or
# constraints.txt change.

.PHONY: demo test clean
.DELETE_ON_ERROR:

# The first Python 3.11 or 3.12 that really runs (a name on the PATH may be a shim that fails).
find_python = for name in python3.11 python3.12 python3 python; do \
	"$$name" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info[:2] not in ((3, 11), (3, 12)))' \
		2>/dev/null && { echo "$$name"; exit; }; \
	done; echo "corymb needs Python 3.11 or 3.12 with its venv module; none was found" >&2; exit 1

install = .venv/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

demo: .venv/.econ
	.venv/bin/corymb demo $(ARGS)

test: .venv/.dev
	.venv/bin/python -m pytest $(ARGS)

# An extra is installed when its stamp is older than the files that say what to install. [dev] holds
# [econ], so one stamp serves both.
.venv/.dev: pyproject.toml constraints.txt .venv/bin/python
	$(install) -e '.[dev]'
	touch .venv/.econ $@

.venv/.econ: pyproject.toml constraints.txt .venv/bin/python
	$(install) -e '.[econ]'
	touch $@

.venv/bin/python:
	python=$$($(find_python)) && "$$python" -m venv .venv
	touch -h $@

clean:
	rm -rf .venv
