# One short verb per habit. `make` alone lists them.
PYTHON ?= $(shell command -v python3.11 || command -v python3 || echo python3)
ROUNDHOUSE := .venv/bin/roundhouse
BUILDER = $(firstword $(wildcard .venvs/builder/bin/python) $(PYTHON))
# Compiled bytecode is kept: importing aws_cdk and transformers anew costs seconds every time.
export PYTHONDONTWRITEBYTECODE :=
.DEFAULT_GOAL := help
.PHONY: help demo demo-chat down test test-chat gpu-bundle test-gpu test-aws rehearsal newcomer check bench doctor environments environments-dev environments-chat lock schema platform-data prices clean

help: ## this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /|/' | awk -F'|' '{printf "  make %-14s %s\n", $$1, $$2}'

demo: environments ## the main job on this machine: one YAML file becomes an answered request
	@$(ROUNDHOUSE) demo

demo-chat: environments-chat ## a chat model, quantized and served by vLLM on this machine, answers in a stream
	@$(ROUNDHOUSE) demo --chat

down: ## stop the local cloud and remove what it made
	@if [ -x $(ROUNDHOUSE) ]; then $(ROUNDHOUSE) down; else echo "Nothing is up: no environment has been made yet."; fi

test: environments-dev ## the whole suite, tier by tier (TIERS="unit synth" for some)
	@.venv/bin/python -m tests.tiers $(TIERS)

test-chat: environments-dev environments-chat ## the tests that need vLLM and llm-compressor: 3 GB of environments more
	@$(PYTHON) -m roundhouse.dev.environments --dev quantizer
	@.venv/bin/python -m tests.tiers text_generation

gpu-bundle: environments ## what a bare machine with an NVIDIA GPU needs for `make test-gpu`, in build/gpu-bundle
	@.venv/bin/python -m tests.gpu.bundle

test-gpu: ## every row of tests/gpu on this machine's GPU; writes build/gpu/*.json (ROWS="tests/gpu/test_servers.py" for some)
	@$(BUILDER) -m tests.gpu $(ROWS)

test-aws: environments-dev ## build, deploy, roll back and destroy an engine in an account (tests/aws/test_story.py)
	@.venv/bin/python -m tests.tiers aws

rehearsal: environments-dev ## play the shipped workflows, from a pull request to prod and back
	@.venv/bin/python -m tests.rehearsal

newcomer: environments-dev ## run the lines of docs/onboarding.md in an empty folder, with an empty home
	@.venv/bin/python -m tests.tiers newcomer

check: environments-dev ## ruff, mypy, import contracts, schema drift
	@.venv/bin/python -m tests.checks

bench: $(if $(BENCH),,environments) ## runtimes and servers of this CPU, in build/bench/runtimes.json; BENCH=h100: of this GPU, in build/bench/h100.json
	@$(if $(BENCH),$(BUILDER) -m benchmarks.gpu build/bench/gpu build/bench/$(BENCH).json,\
	  .venvs/builder/bin/python -m benchmarks.runtimes build/bench build/bench/runtimes.json)

doctor: ## what this machine lacks, disk included, and the lines that install it
	@$(PYTHON) roundhouse/dev/doctor.py $(CHAT)

environments: doctor ## make the locked environments that are not there
	@$(PYTHON) -m roundhouse.dev.environments

environments-dev: doctor
	@$(PYTHON) -m roundhouse.dev.environments --dev

demo-chat test-chat environments-chat: CHAT := chat
environments-chat: doctor
	@$(PYTHON) -m roundhouse.dev.environments --also vllm quantizer

lock: environments ## write requirements/*.txt anew from requirements/*.in
	@cd requirements && for file in *.in; do name=$${file%.in}; case $$name in \
	  torch-cpu) options="--no-deps --torch-backend cpu";; \
	  torch-cuda) options="--excludes torch-needs.txt";; \
	  *-gpu) options=;; \
	  *) options="--excludes excludes.txt";; esac; \
	  ../.venvs/uv/bin/uv pip compile --quiet --generate-hashes --upgrade --python-version 3.11 \
	    $$options --custom-compile-command "make lock" $$file -o $$name.txt || exit; done

schema: environments ## write schemas/*.schema.json anew
	@.venv/bin/python -m onboarding.schema --write

platform-data: doctor ## compare our platform data with the SageMaker SDK's
	@$(PYTHON) -m roundhouse.dev.environments platform
	@.venvs/platform/bin/python -m roundhouse.dev.platform_data

prices: environments ## read AWS's prices in the regions of environments/ into onboarding/data/prices.yaml
	@.venv/bin/python -m roundhouse.dev.prices

clean: down ## remove every environment and everything built
	@rm -rf .venv .venvs node_modules build cdk.out
