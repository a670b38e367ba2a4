"""`python -m benchmarks.h200.experiment FOLDER MODEL OUT`: our server against its engine alone.

FOLDER holds tokenizer.json and, where it is not installed, wrk/wrk; archives are kept there between
runs. MODEL: bert-large or minilm. OUT: a folder for JSON, written anew after each round. `--tiny`
runs the same lines with a tiny network on the CPU. Exit code 1 when a bar was missed.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console

from benchmarks.h200.bars import GROUP, bars
from benchmarks.h200.plan import Plan, candidates, machine_text, plan_request, wrk_of
from benchmarks.h200.stages import Sums, means, sums
from benchmarks.measure import circumstances, table, write
from benchmarks.runtimes.archive import write_archive
from benchmarks.runtimes.networks import module
from benchmarks.runtimes.servers import REPOSITORY
from benchmarks.servers.harness import Harness
from benchmarks.servers.running_server import Running
from benchmarks.servers.workload import (
    Request,
    binary,
    groups,
    kserve,
    least_cosine,
    shuffled_texts,
    vectors,
)
from benchmarks.servers.wrk import requests_file, sentence_requests

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
        expected = torch_rows(self.plan, texts)
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


def torch_rows(plan: Plan, texts: Sequence[str]) -> list[list[float]]:
    """Return the answers of PyTorch in FP32, on the CPU, one text a batch."""
    import torch
    from tokenizers import Tokenizer

    embedder, tokenizer = module(plan.model), Tokenizer.from_file(str(plan.tokenizer))
    tokenizer.no_padding()
    rows = []
    with torch.inference_mode():
        for text in texts:
            ids = torch.tensor([tokenizer.encode(text).ids])
            rows.append(embedder(ids, torch.ones_like(ids), torch.zeros_like(ids))[0].tolist())
    return rows


def _sums(server: Running) -> Sums:
    """Return the sums of one of our servers."""
    return sums(server.candidate.request(METRICS)[1].decode())


def run_experiment(plan: Plan) -> int:
    """Write the archive, measure, write JSON, and print which bars hold."""
    plan.out.mkdir(parents=True, exist_ok=True)
    begin = time.monotonic()

    def report(text: str) -> None:
        print(f"{text} after {time.monotonic() - begin:.0f} s", flush=True)

    harness = Harness(folder=plan.out, wrk=wrk_of(plan.folder, tiny=plan.tiny))
    if not plan.archive.is_dir():
        write_archive(plan.model, plan.folder, cpu=plan.tiny)
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
    today = circumstances(machine_text(tiny=plan.tiny)["machine"])
    write(measures, today, plan.out / f"servers-{plan.model}.json")
    Console(width=150).print(table(f"{plan.model}, {today.machine}", measures))
    return 0 if all(measure.verdict != "missed" for measure in measures) else 1


def _write_requests(plan: Plan) -> None:
    texts, folder = shuffled_texts(REPOSITORY), plan.folder / "requests"
    (plan.folder / "texts.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")
    sentence_requests(texts, folder / "kserve")
    requests_file(map(binary, groups(texts, GROUP, 256)), folder / "sixteen")


def _write_rounds(
    plan: Plan, results: list[dict[str, Any]], servers: Mapping[str, Running]
) -> None:
    document = {
        "model": plan.model,
        **machine_text(tiny=plan.tiny),
        "ready_seconds": {name: server.ready_seconds for name, server in servers.items()},
        "rounds": results,
        "more": dict(plan.variables),
    }
    path = plan.out / f"servers-{plan.model}-rounds.json"
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    try:
        sys.exit(run_experiment(plan_request(sys.argv[1:])))
    except ValueError as error:
        print(error, file=sys.stderr)
        sys.exit(1)
