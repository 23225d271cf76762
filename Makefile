# make demo       set up, run the main job on the embedded data set, draw the figures
# make test       set up, lint, type-check, run the tests, on all cores
# make check      the same without the tests that take long: two minutes, for the time between two commits
# make test-slow  the tests that take long
# make lab        open the notebooks in JupyterLab, in a student's package in work/
# make cluster    a practice Slurm cluster of two nodes on this machine, and a shell on it (Linux, as root)
# make course     for instructors: build the nbgrader course in course/ and release it
# make mistakes   write docs/mistakes.md and docs/checks.md from the bank of answers in tests/answers
# make house      draw docs/house.svg and write the list of rooms in CONTRIBUTING.md
# make site       write the site to build/site: notebooks with outputs, mistakes, results
# make services   Debian, as root: Slurm, Chromium and bubblewrap, for the tests that need them
#
# On a machine where disk is short, install the CPU build of torch: make demo TORCH=cpu

# The first Python that is new enough.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo "$$p"; break; }; done)
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
PIP := $(BIN)/python -m pip --disable-pip-version-check
TORCH ?=
CPU_INDEX := https://download.pytorch.org/whl/cpu

.PHONY: demo check test test-slow lint lab cluster course mistakes house site services clean

demo: $(INSTALLED)
	$(BIN)/python run_benchmarks.py --preset demo
	$(BIN)/python collect_results.py results/demo
	$(BIN)/python plot_results.py results/demo/results.csv

# -n auto: tests/parallel.py says how many processes, and which tests stay together. PYTEST_ARGS=-n0: one process.
test: lint
	$(BIN)/python -m pytest -n auto -m "not gpu and not slow" $(PYTEST_ARGS)

check: lint
	$(BIN)/python -m pytest -n auto -m "not gpu and not slow and not long" $(PYTEST_ARGS)

test-slow: $(INSTALLED)
	$(BIN)/python -m pytest -m "slow and not gpu" $(PYTEST_ARGS)

lint: $(INSTALLED)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lab stubs --check
	$(BIN)/lab notebooks --check

lab: $(INSTALLED)
	$(BIN)/lab jupyter work

cluster: $(INSTALLED)
	@$(BIN)/lab cluster

course: $(INSTALLED)
	$(BIN)/lab course build course
	@cd course && ../$(BIN)/nbgrader generate_assignment lab --force --log-level=ERROR \
		&& ../$(BIN)/nbgrader release_assignment lab --force --log-level=ERROR
	@echo "Released into course/exchange; what comes next is in docs/instructor.md, section 2."

mistakes: $(INSTALLED)
	PYTHONPATH=tests $(BIN)/python -m answers.mistakes
	PYTHONPATH=tests $(BIN)/python -m answers.settings

house: $(INSTALLED)
	$(BIN)/python docs/draw_house.py

site: $(INSTALLED)
	$(BIN)/python docs/build_site.py

services:
	apt-get update -q
	DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends \
		slurm-wlm munge slurmdbd mariadb-server-core iproute2 util-linux procps shellcheck \
		bubblewrap chromium chromium-driver

clean:
	rm -rf results figures .pytest_cache .ruff_cache .mypy_cache

$(INSTALLED): pyproject.toml
	@test -n "$(PYTHON)" || { echo "Scaling Lab needs Python 3.11 or newer; none was found. Name one: make PYTHON=/path/to/python3.11"; exit 1; }
	@echo "Setting up $(VENV) with $$($(PYTHON) --version): torch is a large download, this can take some minutes."
	$(PYTHON) -m venv $(VENV)
ifeq ($(TORCH),cpu)
	$(PIP) install torch torchvision --index-url $(CPU_INDEX)
endif
	$(PIP) install -e '.[dev]'
	@touch $@
