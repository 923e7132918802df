PYTHON ?= python3
VENV := .venv/bin

.venv/ready: pyproject.toml setup.py
	$(PYTHON) -m venv .venv && $(VENV)/pip install -q --upgrade pip && touch $@
demo: .venv/ready  ## install, then sketch the patches of two photographs
	$(VENV)/pip install -q ".[sklearn,plot]" && cd .venv && bin/fastsketch demo --output ../demo-output
# One release, named exactly: "torch" alone may bring gigabytes for a GPU.
TORCH ?= torch==2.13.0
test: .venv/ready  ## install with everything that a test needs, then run all tests
	$(VENV)/pip install -q ".[test]" $(TORCH) && $(VENV)/python tests/run.py
build: .venv/ready  ## sdist and wheel into dist/
	$(VENV)/pip install -q build && $(VENV)/python -m build -o dist
lint: .venv/ready  ## style of Python, Cython and C
	$(VENV)/pip install -q ruff cython-lint clang-format && $(VENV)/ruff check . && PATH="$(CURDIR)/$(VENV):$$PATH" cython-lint fastsketch && $(VENV)/clang-format --dry-run --Werror csrc/*.c csrc/*.h
asan:  ## the C kernels under address and undefined-behaviour sanitizers
	$(CC) -std=c11 -g -O1 -fsanitize=address,undefined -fno-sanitize-recover=all -Icsrc tests/kernels/asan.c csrc/*.c -lm -o .asan && ./.asan; status=$$?; rm -f .asan; exit $$status
bench: .venv/ready  ## the speed tables (bench/README.md)
	$(VENV)/pip install -q ".[bench]" && $(VENV)/python bench/run.py speed
profile: .venv/ready  ## where the time of one sketch goes, function by function
	$(VENV)/pip install -q ".[bench]" && $(VENV)/python bench/run.py profile
.PHONY: demo test build lint asan bench profile
