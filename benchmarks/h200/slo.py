"""`python -m benchmarks.h200.slo FOLDER OUT`: requests a second at the SLO, in eight cells.

BERT-large, texts of 512 tokens, {PyTorch eager FP32, ONNX Runtime with CUDA graphs in FP16} x
{base, batching, 2 instances, both}. Every cell is our server; base runs one text at a time, two
instances are two servers with half of the connections each. A ladder of connections is climbed
until p99 is above the SLO. FOLDER as of `benchmarks.runtimes`; OUT: a JSON file, written anew after
each cell. `--tiny` runs the same lines with a tiny network on the CPU.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.h200.plan import LOAD_THREADS, machine_text, wrk_of
from benchmarks.runtimes.servers import REPOSITORY, our_server
from benchmarks.servers.harness import Harness
from benchmarks.servers.running_server import Candidate, Running
from benchmarks.servers.workload import kserve, least_cosine, vectors
from benchmarks.servers.wrk import Load, Wrk, requests_file

SLO_MS = 500.0
TOKENS = 512
RUNTIMES = ("PyTorch eager, FP32", "ONNX Runtime, CUDA graph, FP16")
CELLS = tuple(itertools.product(RUNTIMES, (False, True), (1, 2)))
"""Runtime, batching, instances."""
LADDER = (2, 8, 32, 64, 128, 256, 384, 512)
"""Connections of a cell, over all its instances."""
TEXTS, CHECKED = 64, 8
LEAST_COSINE = 0.999
HTTP_PROCESSES = 4
"""Of each server: one alone tokenizes fewer texts of 512 tokens than the GPU answers."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One run; `seconds` are those of each load."""

    folder: Path
    out: Path
    tiny: bool
    seconds: float
    ladder: tuple[int, ...]

    @property
    def model(self) -> str:
        """The archive's name."""
        return "tiny" if self.tiny else "bert-large-512"

    @property
    def tokens(self) -> int:
        """Tokens of every text."""
        return 128 if self.tiny else TOKENS


def main(arguments: Sequence[str]) -> int:
    """Measure every cell, and write JSON after each."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.h200.slo", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--ladder", default=",".join(map(str, LADDER)))
    options = parser.parse_args(arguments)
    plan = Plan(
        folder=options.folder.resolve(),
        out=options.out.resolve(),
        tiny=options.tiny,
        seconds=options.seconds,
        ladder=tuple(map(int, options.ladder.split(","))),
    )
    if not (plan.folder / "archives" / plan.model).is_dir():
        from benchmarks.runtimes.archive import write_archive

        write_archive(plan.model, plan.folder, cpu=plan.tiny)
    file = plan.folder / "slo" / "requests"
    requests_file([kserve([text]) for text in whole_texts(plan)], file)
    harness = Harness(folder=plan.folder / "slo", wrk=wrk_of(plan.folder, tiny=plan.tiny))
    with harness.start(*candidates(plan)) as servers:
        print(f"{len(servers)} servers ready", flush=True)
        check(servers.values(), whole_texts(plan)[:CHECKED])
        cells: list[dict[str, Any]] = []
        for cell in random.Random(time.time_ns()).sample(CELLS, len(CELLS)):
            cells.append(_measure(plan, harness.wrk, file, servers, *cell))
            write(plan, cells)
    print(table(cells))
    return 0


def whole_texts(plan: Plan) -> list[str]:
    """Return texts that fill the model's longest sequence."""
    from benchmarks.runtimes.workload import long_texts

    tokenizer = plan.folder / "tokenizer.json"
    return [long_texts(REPOSITORY, tokenizer, plan.tokens, 1, number)[0] for number in range(TEXTS)]


def check(servers: Iterable[Running], texts: Sequence[str]) -> None:
    """Refuse to measure servers that answer differently from each other. Raises ValueError."""
    answers: dict[str, list[list[float]]] = {}
    for server in servers:
        status, body, kind = server.candidate.request(kserve(texts))
        if status != 200:
            raise ValueError(f"{server.candidate.name} answers {status}: {body[:300]!r}")
        answers[server.candidate.name] = vectors(body, kind, len(texts))
    first = next(iter(answers.values()))
    worst = {name: least_cosine(rows, first) for name, rows in answers.items()}
    print(f"worst cosine with the first server: {min(worst.values()):.6f}", flush=True)
    if min(worst.values()) < LEAST_COSINE:
        raise ValueError(f"the servers disagree: {worst}")


def candidates(plan: Plan) -> list[Candidate]:
    """Return two servers of each runtime with batching, and two without."""
    servers = []
    for runtime, batching, instance in CELLS:
        variables = {"ROUNDHOUSE_HTTP_PROCESSES": str(2 if plan.tiny else HTTP_PROCESSES)}
        if not batching:
            variables["ROUNDHOUSE_MAX_BATCH_TOKENS"] = str(plan.tokens)
        program = "container.server"
        if runtime == RUNTIMES[0]:
            program = "benchmarks.runtimes.torch_server"
            name = plan.model.removesuffix("-512")
            variables |= {"TORCH_MODEL": name, "TORCH_DEVICE": "cpu" if plan.tiny else "cuda"}
        servers.append(
            our_server(
                server_name(runtime, batching, instance),
                plan.folder / "archives" / plan.model,
                variables,
                program=program,
                cores=None if plan.tiny else "0-7",
            )
        )
    return servers


def server_name(runtime: str, batching: bool, instance: int) -> str:
    """Return the name of one server: instance 1 or 2."""
    short = runtime.split(",")[0].replace(" ", "-").lower()
    return f"{short}-{'batching' if batching else 'base'}-{instance}"


def _measure(
    plan: Plan,
    wrk: Wrk,
    file: Path,
    servers: Mapping[str, Running],
    runtime: str,
    batching: bool,
    instances: int,
) -> dict[str, Any]:
    own = [
        servers[server_name(runtime, batching, instance)] for instance in range(1, instances + 1)
    ]
    rungs: list[dict[str, Any]] = []
    _load(wrk, file, own, plan.ladder[0], 1.0)
    for connections in plan.ladder:
        loads = _load(wrk, file, own, connections, plan.seconds)
        failed = [load for load in loads if not load.clean]
        rungs.append(
            {
                "connections": connections,
                "requests_per_second": round(sum(load.rate for load in loads), 2),
                "p50_ms": round(max(load.p50_ms for load in loads), 2),
                "p99_ms": round(max(load.p99_ms for load in loads), 2),
                "failed": len(failed),
            }
        )
        if failed or rungs[-1]["p99_ms"] > SLO_MS:
            break
    result = {
        "runtime": runtime,
        "batching": batching,
        "instances": instances,
        "requests_per_second_at_slo": rate_at_slo(rungs),
        "rungs": rungs,
    }
    print(json.dumps(result), flush=True)
    return result


def rate_at_slo(rungs: Sequence[Mapping[str, Any]]) -> float | None:
    """Return the best rate whose p99 is within the SLO; None where no rung's is."""
    rates = [
        float(rung["requests_per_second"])
        for rung in rungs
        if not rung["failed"] and rung["p99_ms"] <= SLO_MS
    ]
    return max(rates, default=None)


def _load(
    wrk: Wrk, file: Path, servers: Sequence[Running], connections: int, seconds: float
) -> list[Load]:
    """Load the instances of a cell at once, each with its part of the connections."""
    for server in servers:
        server.settle()
    part = max(1, connections // len(servers))

    def load(server: Running) -> Load:
        return wrk.load(file, port=server.candidate.port, connections=part, seconds=seconds)

    with ThreadPoolExecutor(len(servers)) as threads:
        return list(threads.map(load, servers))


def write(plan: Plan, cells: Sequence[Mapping[str, Any]]) -> None:
    """Write what is measured so far."""
    document = {
        **machine_text(tiny=plan.tiny),
        "model": plan.model,
        "tokens": plan.tokens,
        "slo_ms": SLO_MS,
        "http_processes": HTTP_PROCESSES,
        "load_threads": LOAD_THREADS,
        "command": "python -m benchmarks.h200.slo FOLDER OUT",
        "cells": cells,
    }
    plan.out.parent.mkdir(parents=True, exist_ok=True)
    plan.out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def table(cells: Sequence[Mapping[str, Any]]) -> str:
    """Return a line for each cell, against PyTorch's base."""
    rates = {
        (cell["runtime"], cell["batching"], cell["instances"]): cell["requests_per_second_at_slo"]
        for cell in cells
    }
    base = rates.get((RUNTIMES[0], False, 1))
    lines = []
    for cell, rate in rates.items():
        times = f"{rate / base:.2f} x" if rate and base else "-"
        lines.append(f"{cell[0]:32} batching {cell[1]!s:5} instances {cell[2]}: {rate} {times}")
    return "\n".join(sorted(lines))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
