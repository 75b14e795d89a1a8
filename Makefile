# Psionic CSM Speech. `make speak` and `make test` set up what they need; a second run sets up nothing.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup speak test check format chaos soak bench bench-queue bench-load gpu-check demo-voice clean

VENV ?= .venv
TEXT ?= Hello. Psionic is ready.
OUT ?= speech.wav
ARGS ?=
# How many tests run at once: a file is never split, and each process has servers of its own.
TEST_PROCESSES ?= 2
VOICE_STAGE ?= all

BIN := $(VENV)/bin
SPEAK_READY := $(VENV)/.ready-speak
DEV_READY := $(VENV)/.ready-dev

# Values go through the environment, unexpanded, so that quotes and dollars reach the program as typed.
export SPEAK_TEXT := $(value TEXT)
export SPEAK_OUT := $(value OUT)
unexport TEXT OUT

help:
	@echo "make speak [TEXT='...'] [OUT=file.wav]  speak one text through the whole system"
	@echo "make test [ARGS='...']                 run the tests"
	@echo "make check                             lint, types, import rules, dependencies"
	@echo "make chaos                             kill, stall and flood real processes"
	@echo "make soak                              the same for long (SOAK_REQUESTS=20000): memory and keys stay flat"
	@echo "make bench [ARGS='...']                measure the engine at CSM-1B's size (minutes, 4 GB of disk)"
	@echo "make bench-queue [ARGS='...']          measure the queue over engines that compute nothing (minutes)"
	@echo "make bench-load [ARGS='...']           load a stack of those, or one with ARGS='--url ...'"
	@echo "make gpu-check [ARGS='...']            on a machine with CUDA: every check, gpu-report.json"
	@echo "make demo-voice [ARGS='...']           train the demo's voice (hours; needs flite)"
	@echo "make setup                             install everything a developer needs"
	@echo "make format                            format and fix what ruff can"
	@echo "make clean                             remove what make made"

speak: $(SPEAK_READY)
	@$(BIN)/python -m cli speak --output "$$SPEAK_OUT" -- "$$SPEAK_TEXT"

setup: $(DEV_READY)

test: $(DEV_READY)
	@$(BIN)/python -m pytest -n $(TEST_PROCESSES) --dist loadfile $(ARGS)

check: $(DEV_READY)
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pip check

format: $(DEV_READY)
	$(BIN)/python -m ruff check --fix .
	$(BIN)/python -m ruff format .

chaos: $(DEV_READY)
	@$(BIN)/python -m pytest -m chaos $(ARGS)

soak: $(DEV_READY)
	@$(BIN)/python -m pytest -m soak $(ARGS)

bench: $(DEV_READY)
	@$(BIN)/python -m cli bench engine $(ARGS)

bench-queue: $(DEV_READY)
	@$(BIN)/python -m cli bench queue $(ARGS)

bench-load: $(DEV_READY)
	@$(BIN)/python -m cli bench load $(ARGS)

# What speaking needs is all that this needs.
gpu-check: $(SPEAK_READY)
	@$(BIN)/python -m benchmarks.gpu_check --report gpu-report.json $(ARGS)

# VOICE_STAGE names one stage: speech, codec, encode, decoder, listen, model, export, evaluate.
demo-voice: $(DEV_READY)
	@$(BIN)/python -m demo_voice $(VOICE_STAGE) $(ARGS)

clean:
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +

# The first Python on the PATH that is new enough; PYTHON=... names another.
FIND_PYTHON = for each in $(PYTHON) python3 python3.13 python3.12 python3.11; do \
	if "$$each" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))' 2>/dev/null; \
	then echo "$$each"; exit; fi; done

ENVIRONMENT = python="$$($(FIND_PYTHON))"; \
	if [ -z "$$python" ]; then \
		echo "Python 3.11, 3.12 or 3.13 is needed and none was found: install one, or name it with" \
			"make PYTHON=/path/to/python3.12 ..." >&2; exit 1; fi; \
	"$$python" deploy/environment.py

# What speaking needs is a part of what developing needs.
$(SPEAK_READY): pyproject.toml
	@if [ $(DEV_READY) -nt pyproject.toml ]; then :; \
	else $(ENVIRONMENT) $(VENV) worker,embedded; fi
	@touch $@

$(DEV_READY): pyproject.toml
	@$(ENVIRONMENT) $(VENV) dev
	@touch $@
