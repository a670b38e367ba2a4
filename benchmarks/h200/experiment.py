"""`python -m benchmarks.h200.experiment FOLDER MODEL OUT`: our server against PyTorch and Flask.

FOLDER holds tokenizer.json and, where it is not installed, wrk/wrk; archives are kept there between
runs. MODEL: bert-large or minilm. OUT: a folder for JSON, written anew after each round. `--tiny`
runs the same lines with a tiny network on the CPU. Exit code 1 when a bar was missed.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console

from benchmarks.h200.bars import GROUP, bars
from benchmarks.h200.plan import LOAD_THREADS, REPOSITORY, Plan, candidates, plan_request
from benchmarks.h200.stages import Sums, means, sums
from benchmarks.measure import circumstances, table, write
from benchmarks.servers.harness import Harness
from benchmarks.servers.running_server import Running
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
from benchmarks.servers.wrk import Wrk, requests_file, sentence_requests, wrk_program
from roundhouse.processes import Command, Processes

CHECKED = 8
LEAST_COSINE = 0.999
"""FP16 against FP32."""
METRICS = Request(body=b"", method="GET", path="/metrics")


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """Servers that are up, and their load."""

    plan: Plan
    harness: Harness
    servers: Mapping[str, Running]

    @property
    def ours(self) -> tuple[str, ...]:
        """The names of our servers."""
        return tuple(name for name in self.servers if name.startswith("ours"))

    def check(self) -> None:
        """Refuse to measure servers whose answers are not PyTorch's. Raises ValueError."""
        texts = shuffled_texts(REPOSITORY)[:CHECKED]
        expected = self._rows("naive", plain(texts))
        other = [*expected[1:], expected[0]]
        for name in self.ours:
            for request in (kserve(texts), binary(texts)):
                rows = self._rows(name, request)
                worst, mixed_up = least_cosine(rows, expected), least_cosine(rows, other)
                print(
                    f"{name}: worst cosine with PyTorch {worst:.6f}, with another text's answer "
                    f"{mixed_up:.6f}",
                    flush=True,
                )
                if worst < LEAST_COSINE or mixed_up >= worst:
                    raise ValueError(
                        f"{name} does not answer as PyTorch does: worst cosine {worst:.6f}, must "
                        f"be at least {LEAST_COSINE}"
                    )

    def round(self, number: int) -> dict[str, Any]:
        """Measure every point once, in an order of this round's own."""
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
        for name in self.ours:
            clients = 64 * max(1, int(name.split()[1]))
            points |= {
                f"{name} c=1": self._load(name, "kserve", 1),
                f"{name} c=64": self._load(name, "kserve", 64),
                f"{name} saturated": self._load(name, "kserve", max(128, clients)),
                f"{name} sixteen": self._load(name, "sixteen", max(32, clients // 2)),
            }
        return points

    def _load(self, name: str, requests: str, clients: int) -> Callable[[], dict[str, Any]]:
        file, server = self.plan.folder / "requests" / requests, self.servers[name]

        def load() -> dict[str, Any]:
            self.harness.load(server, file, clients, 1)
            server.settle()
            before = _sums(server)
            result = self.harness.load(server, file, clients, self.plan.seconds)
            return {
                "rate": result.rate,
                "clients": clients,
                "memory_mb": server.memory_mb(),
                **asdict(result),
                "means": means(before, _sums(server)),
            }

        return load

    def _engine(self, path: str) -> dict[str, Any]:
        body = json.dumps({"seconds": self.plan.seconds}).encode()
        engine = self.servers["engine alone"].candidate
        result: dict[str, Any] = json.loads(engine.request(Request(body=body, path=path))[1])
        return result

    def _rows(self, name: str, request: Request) -> list[list[float]]:
        status, body, content_type = self.servers[name].candidate.request(request)
        if status != 200:
            raise ValueError(f"{name} answers {status}: {body[:300]!r}")
        return vectors(body, content_type, CHECKED)


def _sums(server: Running) -> Sums:
    """Return the sums of one of our servers; the naive one has no metrics."""
    status, body, _ = server.candidate.request(METRICS)
    return sums(body.decode()) if status == 200 else {}


def run_experiment(plan: Plan) -> int:
    """Write the archive, measure, write JSON, and print which bars hold."""
    plan.out.mkdir(parents=True, exist_ok=True)
    begin = time.monotonic()

    def report(text: str) -> None:
        print(f"{text} after {time.monotonic() - begin:.0f} s", flush=True)

    harness = Harness(folder=plan.out, wrk=_wrk(plan))
    _write_archive(plan)
    _write_requests(plan)
    report("archive")
    with harness.start(*candidates(plan)) as servers:
        report(f"{len(servers)} servers ready")
        experiment = Experiment(plan=plan, harness=harness, servers=servers)
        experiment.check()
        results: list[dict[str, Any]] = []
        for number in range(plan.rounds):
            results.append(experiment.round(number))
            _write_rounds(plan, results, servers)
            report(f"round {number + 1} of {plan.rounds}")
    measures = bars(plan.model, results, {number: plan.cores(number) for number in plan.processes})
    today = circumstances(_machine(plan))
    write(measures, today, plan.out / f"servers-{plan.model}.json")
    Console(width=150).print(table(f"{plan.model}, {today.machine}", measures))
    return 0 if all(measure.verdict != "missed" for measure in measures) else 1


def _write_archive(plan: Plan) -> None:
    plan.archive.parent.mkdir(parents=True, exist_ok=True)
    program = (sys.executable, "-m", "benchmarks.h200.programs.archive")
    arguments = (plan.model, str(plan.archive), str(plan.folder / "tokenizer.json"))
    argv = (*program, *arguments, *(("--cpu",) if plan.tiny else ()))
    outcome = Processes()(
        Command(argv=argv, folder=REPOSITORY), lambda line: print(f"    {line}", flush=True)
    )
    if outcome.code != 0:
        raise ValueError(f"the archive could not be written: {outcome.last_lines()}")


def _write_requests(plan: Plan) -> None:
    texts, folder = shuffled_texts(REPOSITORY), plan.folder / "requests"
    (plan.folder / "texts.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")
    sentence_requests(texts, folder / "kserve")
    sentence_requests(texts, folder / "plain", plain)
    requests_file(map(binary, groups(texts, GROUP, 256)), folder / "sixteen")


def _wrk(plan: Plan) -> Wrk:
    program = plan.folder / "wrk" / "wrk"
    return wrk_program(
        plan.folder,
        Processes(),
        program=str(program) if program.is_file() else None,
        threads=1 if plan.tiny else LOAD_THREADS,
        cores=plan.load_cores,
    )


def _write_rounds(
    plan: Plan, results: list[dict[str, Any]], servers: Mapping[str, Running]
) -> None:
    document = {
        "model": plan.model,
        "machine": _machine(plan),
        "ready_seconds": {name: server.ready_seconds for name, server in servers.items()},
        "rounds": results,
        "more": dict(plan.variables),
    }
    path = plan.out / f"servers-{plan.model}-rounds.json"
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def _machine(plan: Plan) -> str:
    import torch

    cores = f"{os.cpu_count()} CPU cores"
    if plan.tiny:
        return f"CPU only, {cores}"
    return f"{torch.cuda.get_device_name(0)}, {cores}, PyTorch {torch.__version__}"


if __name__ == "__main__":
    try:
        sys.exit(run_experiment(plan_request(sys.argv[1:])))
    except ValueError as error:
        print(error, file=sys.stderr)
        sys.exit(1)
