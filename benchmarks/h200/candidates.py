"""Who takes part in the experiment.

Our server by its HTTP processes, the naive one, and the bare engine.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from benchmarks.h200.plan import MAX_TOKENS, REPOSITORY, Plan
from benchmarks.servers.fixtures import free_port
from benchmarks.servers.running_server import Candidate


def candidates(plan: Plan) -> list[Candidate]:
    """All of them; our server with its fewest processes comes twice, as the duplicate control."""
    ours = [_ours(plan, number, f"ours {number}") for number in plan.processes]
    return [
        *ours,
        _ours(plan, plan.processes[0], f"ours {plan.processes[0]} again"),
        _naive(plan),
        _engine_alone(plan),
    ]


def _ours(plan: Plan, processes: int, name: str) -> Candidate:
    port = free_port()
    text = {
        **_environment(),
        "SM_MODEL_DIR": str(plan.archive),
        "SAGEMAKER_BIND_TO_PORT": str(port),
        "ROUNDHOUSE_BIND_ADDRESS": "127.0.0.1",
        "ROUNDHOUSE_HTTP_PROCESSES": str(processes),
        **plan.more,
    }
    argv = (sys.executable, "-m", "container.server", "serve")
    return Candidate(
        name=name,
        argv=argv,
        port=port,
        folder=REPOSITORY,
        environment=text,
        cores=plan.pinned(processes),
    )


def _naive(plan: Plan) -> Candidate:
    port = free_port()
    text = {
        **_environment(),
        "NAIVE_MODEL": plan.model,
        "NAIVE_TOKENIZER": str(plan.folder / "tokenizer.json"),
        "NAIVE_DEVICE": "cpu" if plan.tiny else "cuda",
        "NAIVE_MAX_TOKENS": str(MAX_TOKENS),
    }
    listen = (
        "--workers",
        "1",
        "--worker-class",
        "sync",
        "--timeout",
        "120",
        "--bind",
        f"127.0.0.1:{port}",
    )
    argv = (
        sys.executable,
        "-m",
        "gunicorn",
        "--log-level",
        "warning",
        *listen,
        "benchmarks.h200.programs.naive:app",
    )
    return Candidate(
        name="naive",
        argv=argv,
        port=port,
        folder=REPOSITORY,
        environment=text,
        cores=plan.pinned(3),
    )


def _engine_alone(plan: Plan) -> Candidate:
    port = free_port()
    given = (str(plan.archive), str(plan.folder / "texts.txt"), str(port))
    argv = (sys.executable, "-m", "benchmarks.h200.programs.engine_alone", *given)
    text = {**_environment(), **plan.more}
    return Candidate(
        name="engine alone",
        argv=argv,
        port=port,
        folder=REPOSITORY,
        environment=text,
        cores=plan.pinned(3),
    )


def _environment() -> dict[str, str]:
    """Return this process's environment with the folders of PyTorch's CUDA libraries."""
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith("ROUNDHOUSE_")
    }
    folders = [
        str(folder) for entry in sys.path for folder in sorted(Path(entry).glob("nvidia/*/lib"))
    ]
    libraries = ":".join([*folders, *filter(None, [inherited.get("LD_LIBRARY_PATH")])])
    paths = ":".join([str(REPOSITORY), *filter(None, [inherited.get("PYTHONPATH")])])
    return {**inherited, "LD_LIBRARY_PATH": libraries, "PYTHONPATH": paths}
