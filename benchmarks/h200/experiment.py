"""`python -m benchmarks.h200.experiment FOLDER MODEL OUT`.

Our server before a GPU's engine, against PyTorch behind Flask.

FOLDER: what `transfer unpack` left; archives are kept there between calls. MODEL: bert-large or
minilm. OUT: a folder for JSON, written anew after each round. `--tiny` runs the same lines with a
tiny network on the CPU. Exit code 1 when a bar was missed.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console

from benchmarks.h200.bars import GROUP, bars
from benchmarks.h200.candidates import candidates
from benchmarks.h200.plan import REPOSITORY, Plan, Sums, means, plan_request, sums
from benchmarks.measure import Circumstances, table, write
from benchmarks.servers.running_server import Running, running
from benchmarks.servers.workload import (
    Request,
    binary,
    groups,
    kserve,
    least_cosine,
    plain,
    shuffled_texts,
    vectors,
)
from benchmarks.servers.wrk import Load, Wrk, requests_file, wrk_program
from roundhouse.processes import Command, Processes

CHECKED = 8
LEAST_COSINE = 0.999
"""FP16 against FP32."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """Servers that are up, and their load."""

    plan: Plan
    servers: Mapping[str, Running]
    wrk: Wrk

    def check(self) -> None:
        """Refuses to measure servers whose answers are not PyTorch's. Raises ValueError."""
        texts = shuffled_texts(REPOSITORY)[:CHECKED]
        wanted = self._rows(self.servers["naive"], plain(texts))
        for name, server in self.servers.items():
            if name.startswith("ours"):
                for request in (kserve(texts), binary(texts)):
                    self._compare(name, self._rows(server, request), wanted)

    def round(self, number: int) -> dict[str, Any]:
        """Every point once, in an order of this round's own."""
        points = self._points()
        names = sorted(points)
        random.Random(number).shuffle(names)
        return {name: points[name]() for name in names}

    def _points(self) -> dict[str, Callable[[], Any]]:
        points: dict[str, Callable[[], Any]] = {
            "engine rate": lambda: self._engine("/rate"),
            "engine lone": lambda: self._engine("/lone"),
            "naive c=1": self._load("naive", "plain", 1),
            "naive c=64": self._load("naive", "plain", 64),
        }
        for name in self.servers:
            if name.startswith("ours"):
                clients = 64 * max(1, int(name.split()[1]))
                points |= {
                    f"{name} c=1": self._load(name, "kserve", 1),
                    f"{name} c=64": self._load(name, "kserve", 64),
                    f"{name} saturated": self._load(name, "kserve", max(128, clients)),
                    f"{name} sixteen": self._load(name, "sixteen", max(32, clients // 2)),
                }
        return points

    def _load(self, name: str, kind: str, clients: int) -> Callable[[], dict[str, Any]]:
        file, server = self.plan.folder / "requests" / kind, self.servers[name]

        def load() -> dict[str, Any]:
            self.wrk.load(file, port=server.candidate.port, connections=clients, seconds=1)
            server.settle()
            before = _sums(server)
            found = self.wrk.load(
                file, port=server.candidate.port, connections=clients, seconds=self.plan.seconds
            )
            _refuse_faults(f"{name}, {kind}, {clients} clients", found)
            text = {
                "rate": found.rate,
                "clients": clients,
                "memory_mb": server.memory_mb(),
                **asdict(found),
            }
            return {**text, "means": means(before, _sums(server))}

        return load

    def _engine(self, path: str) -> dict[str, Any]:
        body = json.dumps({"seconds": self.plan.seconds}).encode()
        found: dict[str, Any] = json.loads(
            self.servers["engine alone"].ask(Request(body=body, path=path))[1]
        )
        return found

    def _rows(self, server: Running, request: Request) -> list[list[float]]:
        status, body, content_type = server.ask(request)
        if status != 200:
            raise ValueError(f"{server.candidate.name} answers {status}: {body[:300]!r}")
        return vectors(body, content_type, CHECKED)

    def _compare(self, name: str, found: list[list[float]], wanted: list[list[float]]) -> None:
        worst = least_cosine(found, wanted)
        mixed_up = least_cosine(found, [*wanted[1:], wanted[0]])
        print(
            f"{name}: worst cosine with PyTorch {worst:.6f}, with another text's answer "
            f"{mixed_up:.6f}",
            flush=True,
        )
        if worst < LEAST_COSINE or mixed_up >= worst:
            raise ValueError(
                f"{name} does not answer what PyTorch answers: worst cosine {worst:.6f}, at "
                f"least {LEAST_COSINE} wanted"
            )


def _sums(server: Running) -> Sums:
    """Of our servers; the naive one has no metrics."""
    status, body, _ = server.ask(Request(body=b"", method="GET", path="/metrics"))
    return sums(body.decode()) if status == 200 else {}


def _refuse_faults(what: str, found: Load) -> None:
    if not found.clean:
        raise ValueError(f"{what}: not every request was answered: {found}")


def experiment(plan: Plan) -> int:
    """Makes the archive, measures, writes JSON, and says which bars hold."""
    plan.out.mkdir(parents=True, exist_ok=True)
    begin = time.monotonic()
    _created(plan)
    _say(f"archive after {time.monotonic() - begin:.0f} s")
    with _servers(plan) as servers:
        _say(f"{len(servers)} servers ready after {time.monotonic() - begin:.0f} s")
        trial = Trial(plan=plan, servers=servers, wrk=_wrk(plan))
        trial.check()
        found: list[dict[str, Any]] = []
        for number in range(plan.rounds):
            found.append(trial.round(number))
            _write(plan, found, servers)
            _say(f"round {number + 1} of {plan.rounds} after {time.monotonic() - begin:.0f} s")
    measures = bars(plan.model, found, {number: plan.cores(number) for number in plan.processes})
    where = Circumstances(
        machine=_machine(plan), date=datetime.datetime.now(datetime.UTC).date().isoformat()
    )
    write(measures, where, plan.out / f"servers-{plan.model}.json")
    Console(width=150).print(table(f"{plan.model}, {where.machine}", measures))
    return 0 if all(measure.verdict != "missed" for measure in measures) else 1


def _created(plan: Plan) -> None:
    cpu = ("--cpu",) if plan.tiny else ()
    target = (plan.model, str(plan.archive), str(plan.folder / "tokenizer.json"))
    plan.archive.parent.mkdir(parents=True, exist_ok=True)
    argv = (sys.executable, "-m", "benchmarks.h200.programs.archive", *target, *cpu)
    outcome = Processes()(
        Command(argv=argv, folder=REPOSITORY), lambda line: print(f"    {line}", flush=True)
    )
    if outcome.code != 0:
        raise ValueError(f"the archive was not made: {outcome.last_lines()}")
    texts = shuffled_texts(REPOSITORY)
    (plan.folder / "texts.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")
    requests_file([kserve([text]) for text in texts], plan.folder / "requests" / "kserve")
    requests_file([plain([text]) for text in texts], plan.folder / "requests" / "plain")
    requests_file(
        [binary(group) for group in groups(texts, GROUP, 256)], plan.folder / "requests" / "sixteen"
    )


def _wrk(plan: Plan) -> Wrk:
    transferred = plan.folder / "wrk" / "wrk"
    program = str(transferred) if transferred.is_file() else None
    return wrk_program(
        plan.folder,
        Processes(),
        program=program,
        threads=1 if plan.tiny else plan.load_threads,
        cores=plan.load_cores,
    )


@contextlib.contextmanager
def _servers(plan: Plan) -> Iterator[dict[str, Running]]:
    """All of them up at once; who is not asked costs nothing."""
    with contextlib.ExitStack() as stack:
        yield {
            candidate.name: stack.enter_context(
                running(candidate, plan.out / "logs" / f"{candidate.name.replace(' ', '-')}.log")
            )
            for candidate in candidates(plan)
        }


def _write(plan: Plan, found: list[dict[str, Any]], servers: Mapping[str, Running]) -> None:
    starts = {name: server.ready_seconds for name, server in servers.items()}
    raw = {
        "model": plan.model,
        "machine": _machine(plan),
        "ready_seconds": starts,
        "rounds": found,
        "more": dict(plan.more),
    }
    (plan.out / f"servers-{plan.model}-rounds.json").write_text(
        json.dumps(raw, indent=1) + "\n", encoding="utf-8"
    )


def _machine(plan: Plan) -> str:
    import torch

    cores = f"{os.cpu_count()} CPU cores"
    return (
        f"CPU only, {cores}"
        if plan.tiny
        else f"{torch.cuda.get_device_name(0)}, {cores}, PyTorch {torch.__version__}"
    )


def _say(words: str) -> None:
    print(words, flush=True)


if __name__ == "__main__":
    try:
        sys.exit(experiment(plan_request(sys.argv[1:])))
    except ValueError as fault:
        print(fault, file=sys.stderr)
        sys.exit(1)
