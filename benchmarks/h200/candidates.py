"""The servers of the experiment: ours by its HTTP processes, the naive one, the bare engine."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from benchmarks.h200.plan import MAX_TOKENS, REPOSITORY, Plan
from benchmarks.servers.candidates import gunicorn
from benchmarks.servers.running_server import Candidate, free_port


def candidates(plan: Plan) -> list[Candidate]:
    """Return all; our server with its fewest processes comes twice, as the duplicate control."""
    first = plan.processes[0]
    ours = [_ours(plan, number, f"ours {number}") for number in plan.processes]
    return [*ours, _ours(plan, first, f"ours {first} again"), _naive(plan), _engine_alone(plan)]


def _ours(plan: Plan, processes: int, name: str) -> Candidate:
    port = free_port()
    variables = {
        "SM_MODEL_DIR": str(plan.archive),
        "SAGEMAKER_BIND_TO_PORT": str(port),
        "ROUNDHOUSE_BIND_ADDRESS": "127.0.0.1",
        "ROUNDHOUSE_HTTP_PROCESSES": str(processes),
        **plan.variables,
    }
    argv = (sys.executable, "-m", "container.server", "serve")
    return _candidate(plan, name, argv, port, processes, variables)


def _naive(plan: Plan) -> Candidate:
    port = free_port()
    variables = {
        "NAIVE_MODEL": plan.model,
        "NAIVE_TOKENIZER": str(plan.folder / "tokenizer.json"),
        "NAIVE_DEVICE": "cpu" if plan.tiny else "cuda",
        "NAIVE_MAX_TOKENS": str(MAX_TOKENS),
    }
    argv = gunicorn(sys.executable, port, 1, "benchmarks.h200.programs.naive:app")
    return _candidate(plan, "naive", argv, port, 2, variables)


def _engine_alone(plan: Plan) -> Candidate:
    port = free_port()
    program = (sys.executable, "-m", "benchmarks.h200.programs.engine_alone")
    argv = (*program, str(plan.archive), str(plan.folder / "texts.txt"), str(port))
    return _candidate(plan, "engine alone", argv, port, 2, plan.variables)


def _candidate(
    plan: Plan,
    name: str,
    argv: tuple[str, ...],
    port: int,
    processes: int,
    variables: Mapping[str, str],
) -> Candidate:
    return Candidate(
        name=name,
        argv=argv,
        port=port,
        folder=REPOSITORY,
        environment={**_environment(), **variables},
        cores=plan.pinned_cores(processes),
    )


def _environment() -> dict[str, str]:
    """Return this process's environment with the folders of PyTorch's CUDA libraries."""
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith("ROUNDHOUSE_")
    }
    libraries = [
        str(path) for entry in sys.path for path in sorted(Path(entry).glob("nvidia/*/lib"))
    ]
    paths = {"LD_LIBRARY_PATH": libraries, "PYTHONPATH": [str(REPOSITORY)]}
    joined = {
        name: ":".join([*folders, *filter(None, [inherited.get(name)])])
        for name, folders in paths.items()
    }
    return {**inherited, **joined}
