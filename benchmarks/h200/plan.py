"""One run of the experiment: its command line, and the servers that it measures."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.servers.candidates import gunicorn
from benchmarks.servers.running_server import Candidate, free_port

REPOSITORY = Path(__file__).resolve().parents[2]
MAX_TOKENS = 128
LOAD_THREADS = 6


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The HTTP processes of each of our servers, and the seconds and rounds of every load.

    `variables` are those of our servers and of the engine.
    """

    model: str
    folder: Path
    out: Path
    tiny: bool
    processes: tuple[int, ...]
    rounds: int
    seconds: float
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def archive(self) -> Path:
        """The engine's archive."""
        return self.folder / "archives" / self.model

    def cores(self, processes: int) -> int:
        """Return the cores that a server gets.

        One for each HTTP process before an owner, one for the owner, one for its engine thread.
        """
        return 2 if processes == 1 else processes + 2

    def pinned_cores(self, processes: int) -> str | None:
        """Return taskset's list for such a server; the tiny run shares the few cores there are."""
        return None if self.tiny else f"0-{self.cores(processes) - 1}"

    @property
    def load_cores(self) -> str | None:
        """Taskset's list for the load generator: the upper half."""
        count = os.cpu_count() or 16
        return None if self.tiny else f"{count // 2}-{count - 1}"


def plan_request(arguments: list[str]) -> Plan:
    """Return the plan of a command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.h200.experiment")
    parser.add_argument("folder", type=Path)
    parser.add_argument("model", choices=("bert-large", "minilm", "tiny"))
    parser.add_argument("out", type=Path)
    parser.add_argument("--tiny", action="store_true", help="on the CPU, without pinned cores")
    parser.add_argument(
        "--processes",
        help="HTTP processes of each of our servers; default: 1,2,4 and, for minilm, 6",
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a variable of our servers and the engine",
    )
    options = parser.parse_args(arguments)
    usual = "1,2,4,6" if options.model == "minilm" else "1,2,4"
    processes = usual if options.processes is None else options.processes
    return Plan(
        model=options.model,
        folder=options.folder.resolve(),
        out=options.out.resolve(),
        tiny=options.tiny,
        processes=tuple(int(number) for number in processes.split(",")),
        rounds=options.rounds,
        seconds=options.seconds,
        variables=dict(setting.split("=", 1) for setting in options.set),
    )


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
