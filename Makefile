ifeq ($(OS),Windows_NT)
PYTHON ?= python
VENV := .venv/Scripts
else
PYTHON ?= python3
VENV := .venv/bin
endif
RUN := $(VENV)/python
PIP := $(RUN) -m pip
# One release, named exactly: "torch" alone may bring gigabytes for a GPU.
TORCH ?= torch==2.13.0
# What is tested: this tree, or a wheel that was built from it.
PACKAGE ?= .
# What is installed with it for tests: where some of that has no wheels, `test-core`.
EXTRAS ?= test
# What the tests of the build run, of which an environment without them skips some: [build-system] of pyproject.toml.
BUILDERS := "setuptools>=77" "Cython>=3.1"
# Of each target of `make fuzz`.
SECONDS ?= 60
# Which part of the long tests: 3/12 is the fourth of twelve; nothing is all of them.
TURN ?=
# What `make mutants` draws.
ROOM ?= ranking
N ?= 20
SEED ?= 0

.venv/ready: pyproject.toml setup.py
	$(PYTHON) -m venv .venv && $(PIP) install -q --upgrade pip && touch $@
demo: .venv/ready  ## install, then sketch the patches of two photographs
	$(PIP) install -q "$(PACKAGE)[sklearn,plot]" && $(RUN) examples/demo --output demo-output
test: .venv/ready  ## install with everything that a test needs, then run all tests in their short form
	$(PIP) install -q "$(PACKAGE)[$(EXTRAS)]" $(BUILDERS) $(TORCH) && $(RUN) tests/run.py
test-long: .venv/ready  ## the short and the long form; TURN=3/12: of the long form alone a part
	$(PIP) install -q "$(PACKAGE)[$(EXTRAS)]" $(BUILDERS) $(TORCH) && $(RUN) tests/run.py $(if $(TURN),--turn $(TURN),--long)
mutants: .venv/ready  ## change one thing at a time in a room and see whether its tests notice: ROOM=sketching N=20 SEED=0
	$(PIP) install -q "$(PACKAGE)[test]" $(TORCH) --group asan && $(RUN) tests/mutants.py $(ROOM) $(N) $(SEED)
# In an environment of its own, and with the oldest Python, for which these releases have wheels.
OLDEST_PYTHON ?= python3.11
OLDEST := $(subst .venv,.venv-oldest,$(RUN))
test-oldest:  ## all tests but torch's with the lower bounds of pyproject.toml: tests/oldest.txt
	$(OLDEST_PYTHON) -m venv .venv-oldest && $(OLDEST) -m pip install -q --upgrade pip && $(OLDEST) -m pip install -q -c tests/oldest.txt ".[test]" $(BUILDERS) && $(OLDEST) tests/run.py
reliability: .venv/ready  ## the long form of tests/reliability, and its table in docs/reliability.md
	$(PIP) install -q ".[test]" $(TORCH) && $(RUN) tests/reliability/table.py
packages: .venv/ready  ## all that the other targets need but fastsketch itself
	mkdir -p build && $(RUN) .ci/requirements.py test docs > build/requirements.txt && $(PIP) install -q $(TORCH) --group lint --group asan -r build/requirements.txt
build: .venv/ready  ## sdist and wheel into dist/
	$(PIP) install -q build && $(RUN) -m build -o dist
lint: .venv/ready  ## all that is checked without running the library's code
	$(MAKE) style types stubs
style: .venv/ready  ## style of Python, Cython and C
	$(PIP) install -q --group lint && $(VENV)/ruff check . && $(VENV)/ruff format --check . && PATH="$$PWD/$(VENV):$$PATH" cython-lint fastsketch && $(VENV)/clang-format --dry-run --Werror csrc/*.c csrc/*.h
types: .venv/ready  ## the package, documents and examples as an editor shows them
	$(PIP) install -q --group lint "$(PACKAGE)[test]" $(TORCH) && $(VENV)/pyright --pythonpath $(RUN) && $(RUN) tests/types/check_documents.py
stubs: .venv/ready  ## the package strictly, stubs against compiled kernels
	$(PIP) install -q --group lint "$(PACKAGE)[test]" $(TORCH) && $(VENV)/mypy && cd .venv && $(RUN:.venv/%=%) -m mypy.stubtest fastsketch --mypy-config-file ../pyproject.toml --allowlist ../tests/types/stubtest.txt --ignore-missing-stub --ignore-unused-allowlist
asan: .venv/ready  ## C driver, compiled extensions and their tests under address and undefined-behaviour sanitizers; TURN=0/3
	$(PIP) install -q --group asan && $(RUN) tests/kernels/sanitized.py $(TURN)
# gcc and C library for ARM, and what runs their programs: Debian's gcc-aarch64-linux-gnu and qemu-user.
ARM_CC ?= aarch64-linux-gnu-gcc
ARM_RUN ?= qemu-aarch64
test-arm:  ## the C driver for 64-bit ARM under qemu: a digest of all results at each level, NEON's equal to AVX2's
	mkdir -p build && $(ARM_CC) -std=c11 -O3 -static -Icsrc tests/kernels/asan.c csrc/*.c -lm -lpthread -o build/driver-arm && $(ARM_RUN) build/driver-arm
fuzz: .venv/ready  ## the readers of rows, state files and journals of jobs under a fuzzer: make fuzz SECONDS=600
	$(PIP) install -q --group fuzz ".[test]" && for target in svmlight csv state table npz market journal manifest nested; do $(RUN) tests/fuzz/fuzz.py $$target -max_total_time=$(SECONDS) || exit 1; done
docs: .venv/ready  ## the site in docs/_build/html, with every example of the gallery run
	$(PIP) install -q ".[docs,all]" $(TORCH) && $(RUN) docs/build.py
docs-quick: .venv/ready  ## the site without running the gallery, and its links checked
	$(PIP) install -q "$(PACKAGE)[docs]" $(TORCH) && $(RUN) docs/build.py --quick
release-check:  ## all that must hold before a version is tagged; uploads nothing
	$(PYTHON) tests/release.py
bench: .venv/ready  ## the speed tables (bench/README.md)
	$(PIP) install -q ".[bench]" && $(RUN) bench/run.py speed
# Some of rfd, adafd, frosh, glrl; nothing is all of them.
PAPERS ?=
papers: .venv/ready  ## the experiments of the four papers into build/papers, for hours; a run that was stopped goes on: PAPERS="rfd glrl"
	$(PIP) install -q ".[bench]" $(TORCH) && $(RUN) bench/papers.py $(PAPERS)
asv: .venv/ready  ## every asv class once, with this tree's library; asv keeps what it knows of the machine in the home folder
	$(PIP) install -q ".[bench]" && $(VENV)/asv machine --yes && $(VENV)/asv run --python=same --quick
profile: .venv/ready  ## where the time inside a call goes, from Python to C and BLAS, with flame graphs in build/
	$(PIP) install -q ".[bench]" && $(RUN) bench/run.py profile
.PHONY: demo test test-long mutants release-check test-oldest reliability packages build lint style types stubs asan test-arm docs docs-quick fuzz bench papers asv profile
