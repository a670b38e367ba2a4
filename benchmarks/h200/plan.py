"""One run of the experiment: its command line, and the servers that it measures."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.measure import circumstances
from benchmarks.runtimes.servers import REPOSITORY, our_server, server_environment
from benchmarks.servers.running_server import Candidate, free_port
from benchmarks.servers.wrk import Wrk, wrk_program
from roundhouse.processes import Processes

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

    @property
    def tokenizer(self) -> Path:
        """The tokenizer of every text model."""
        return self.folder / "tokenizer.json"

    def cores(self, processes: int) -> int:
        """Return the cores that a server gets.

        One for each HTTP process before an owner, one for the owner, one for its engine thread.
        """
        return 2 if processes == 1 else processes + 2

    def pinned_cores(self, processes: int) -> str | None:
        """Return taskset's list for such a server; the tiny run shares the few cores there are."""
        return None if self.tiny else f"0-{self.cores(processes) - 1}"


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
    return [*ours, _ours(plan, first, f"ours {first} again"), _engine_alone(plan)]


def _ours(plan: Plan, processes: int, name: str) -> Candidate:
    variables = {"ROUNDHOUSE_HTTP_PROCESSES": str(processes), **plan.variables}
    return our_server(name, plan.archive, variables, cores=plan.pinned_cores(processes))


def _engine_alone(plan: Plan) -> Candidate:
    port = free_port()
    program = (sys.executable, "-m", "benchmarks.h200.programs.engine_alone")
    argv = (*program, str(plan.archive), str(plan.folder / "texts.txt"), str(port))
    return Candidate(
        name="engine alone",
        argv=argv,
        port=port,
        folder=REPOSITORY,
        environment={**server_environment(), **plan.variables},
        cores=plan.pinned_cores(2),
    )


def load_cores(*, tiny: bool) -> str | None:
    """Taskset's list for the load generator: the upper half; a tiny run shares all."""
    count = os.cpu_count() or 16
    return None if tiny else f"{count // 2}-{count - 1}"


def wrk_of(folder: Path, *, tiny: bool) -> Wrk:
    """Return the load generator of a folder, or this machine's. Raises ValueError."""
    program = folder / "wrk" / "wrk"
    return wrk_program(
        folder,
        Processes(),
        program=str(program) if program.is_file() else None,
        threads=1 if tiny else LOAD_THREADS,
        cores=load_cores(tiny=tiny),
    )


def machine_text(*, tiny: bool) -> dict[str, str]:
    """Return machine and date, as JSON files hold them."""
    import torch

    cores, today = f"{os.cpu_count()} CPU cores", circumstances("").date
    if tiny:
        return {"machine": f"CPU only, {cores}", "date": today}
    gpu = torch.cuda.get_device_name(0)
    return {"machine": f"{gpu}, {cores}, PyTorch {torch.__version__}", "date": today}
