"""`python -m benchmarks.runtimes FOLDER OUT`: each model in every runtime and server, equal inputs.

FOLDER holds tokenizer.json, checkpoints/NAME of models with trained weights and, where it is not
installed, wrk/wrk; archives are kept there between runs. OUT: the JSON file, written anew after
each model. On a machine with an NVIDIA GPU it measures that, elsewhere the CPU. docs/benchmarks
has the results.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import statistics
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch

from benchmarks.measure import circumstances
from benchmarks.runtimes.archive import network_name, write_archive
from benchmarks.runtimes.engines import Client, Device, local_engines
from benchmarks.runtimes.networks import checkpoint_folder
from benchmarks.runtimes.workload import Workload, workload
from benchmarks.servers.harness import Harness, requests_file, wrk_program
from benchmarks.servers.running_server import REPOSITORY, Running, ours, triton
from benchmarks.servers.workload import Request
from engine_build.evaluation.latency import CONTROL, Engine, Track, measure_latencies
from engine_build.evaluation.scores import cosines, median_interval
from roundhouse.processes import Processes

MODELS = ("minilm", "vit", "bert-large-512")
BATCHES = {
    ("minilm", "cpu"): (1, 32),
    ("bert-large-512", "cpu"): (1, 2),
    ("bert-large-512", "cuda"): (1, 32),
    ("minilm", "cuda"): (1, 32),
}
"""Others: 1 and 8; a request of more images would be larger than InvokeEndpoint takes."""
REQUESTS = 16
"""Different requests of a load."""
ROUNDS = 3
TOKENS = re.compile(
    r'^roundhouse_tokens(?:_total)?\{[^}]*kind="(real|padding)"[^}]*\} (\S+)$', re.M
)
METRICS = Request(body=b"", method="GET", path="/metrics")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One run of the benchmark; seconds are those of a model's latencies, and of one load."""

    folder: Path
    device: Device
    models: tuple[str, ...]
    seconds: float
    load_seconds: float

    def workload(self, model: str, batch: int, number: int = 0) -> Workload:
        """Return a batch of a model."""
        return workload(model, REPOSITORY, self.folder / "tokenizer.json", batch, number)

    def batches(self, model: str) -> tuple[int, int]:
        """Return the two batch sizes of a model."""
        return BATCHES.get((model, self.device), (1, 8))


def main(arguments: Sequence[str]) -> int:
    """Measure, and write JSON after each model."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.runtimes", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--models", help=f"of {', '.join(MODELS)}; default: all")
    parser.add_argument("--seconds", type=float, default=60.0, help="for a model's latencies")
    parser.add_argument("--load-seconds", type=float, default=3.0)
    options = parser.parse_args(arguments)
    plan = Plan(
        folder=options.folder.resolve(),
        device="cuda" if torch.cuda.is_available() else "cpu",
        models=MODELS if options.models is None else tuple(options.models.split(",")),
        seconds=options.seconds,
        load_seconds=options.load_seconds,
    )
    rows: list[dict[str, Any]] = []
    for model in plan.models:
        try:
            rows += _measure(plan, model)
        except Exception as fault:  # the other models' numbers stay worth having
            traceback.print_exc()
            rows.append({"model": model, "failed": f"{type(fault).__name__}: {fault}"[:300]})
        document = {**_circumstances(plan), "rows": rows}
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return 1 if any("failed" in row for row in rows) else 0


def _circumstances(plan: Plan) -> dict[str, Any]:
    today = circumstances()
    gpu = torch.cuda.get_device_name(0) if plan.device == "cuda" else None
    versions = {"PyTorch": torch.__version__, "ONNX Runtime": onnxruntime.__version__}
    machine = {"machine": today.machine, "gpu": gpu, "date": today.date}
    return {**machine, "versions": versions, "command": "python -m benchmarks.runtimes"}


def _measure(plan: Plan, model: str) -> list[dict[str, Any]]:
    archive = plan.folder / "archives" / model
    if not archive.is_dir():
        write_archive(model, plan.folder, cpu=plan.device == "cpu")
    name = network_name(model)
    workloads = [plan.workload(model, batch) for batch in plan.batches(model)]
    out = plan.folder / "runtimes" / model
    program = plan.folder / "wrk" / "wrk"
    wrk = wrk_program(out, Processes(), program=str(program) if program.is_file() else None)
    harness = Harness(folder=out, wrk=wrk)
    candidates = [ours(archive, "our server")]
    if plan.device == "cpu":
        candidates.append(triton(archive, plan.folder, "Triton", model=model))
    with harness.start(*candidates) as servers:
        print(f"{model}: {len(servers)} servers ready", flush=True)
        engines, failed = _local_engines(plan, model, workloads)
        engines.append(replace(engines[0], precision=engines[0].precision + CONTROL))
        with contextlib.ExitStack() as stack:
            for server in servers.values():
                client = Client(server.candidate.port, workloads)
                stack.callback(client.close)
                precision = "fp32" if plan.device == "cpu" else "fp16"
                label = server.candidate.name
                engines.append(Engine(runtime=label, precision=precision, run=client.rows))
            rows = _latencies(model, engines, workloads, plan.seconds)
        for row in rows:
            if (served := servers.get(row["runtime"])) is not None:
                try:
                    row |= _load(plan, harness, served, model, row["batch"])
                except ValueError as fault:  # the latency stays worth having
                    row["load_failed"] = str(fault)[:300]
    for row in (*rows, *failed):
        print(f"  {json.dumps(row)}", flush=True)
    weights = "random" if checkpoint_folder(name, plan.folder) is None else "trained"
    return [{**row, "weights": weights} for row in (*rows, *failed)]


def _local_engines(
    plan: Plan, model: str, workloads: Sequence[Workload]
) -> tuple[list[Engine], list[dict[str, Any]]]:
    """Return the runtimes of this process that ran every batch, and a row of each other one."""
    engines, failed = [], []
    archive = plan.folder / "archives" / model
    loads = local_engines(network_name(model), plan.folder, archive, plan.device)
    for runtime, precision, load in loads:
        row: dict[str, Any] = {"model": model, "runtime": runtime, "precision": precision}
        try:
            engine = Engine(runtime=runtime, precision=precision, run=load())
            for one in workloads:
                engine.run(one.feed)
            engines.append(engine)
        except Exception as fault:
            failed.append({**row, "failed": f"{type(fault).__name__}: {fault}"[:300]})
        print(f"  {row} loaded or failed: {len(engines)}, {len(failed)}", flush=True)
    return engines, failed


def _latencies(
    model: str, engines: Sequence[Engine], workloads: Sequence[Workload], seconds: float
) -> list[dict[str, Any]]:
    """Return a row for each engine and batch; in-process rates follow from the median."""
    tracks = [Track(shape=one.shape, feed=one.feed, least=5) for one in workloads]
    measured = measure_latencies(engines, tracks, seconds=seconds)
    rows = []
    for one, latencies in zip(workloads, measured, strict=True):
        reference: Any = engines[0].run(one.feed)
        for index, engine in enumerate(engines):
            milliseconds = latencies.of(index)
            p50, interval = float(np.median(milliseconds)), median_interval(milliseconds)
            scores = cosines(np.asarray(engine.run(one.feed)), reference)
            rate = [1e3 * one.shape.batch / value for value in (p50, interval[1], interval[0])]
            rows.append(
                {
                    "model": model,
                    "runtime": engine.runtime,
                    "precision": engine.precision,
                    "batch": one.shape.batch,
                    "useful_tokens": one.useful_tokens,
                    "padded_tokens": one.padded_tokens,
                    "p50_ms": round(p50, 4),
                    "p50_interval": [round(value, 4) for value in interval],
                    "p99_ms": round(float(np.percentile(milliseconds, 99)), 4),
                    "runs": len(milliseconds),
                    "rows_per_second": round(rate[0], 2),
                    "rows_per_second_interval": [round(value, 2) for value in rate[1:]],
                    "cosine_mean": round(float(scores.mean()), 6),
                    "cosine_worst": round(float(scores.min()), 6),
                    "rows_compared": len(scores),
                }
            )
    return rows


def _load(plan: Plan, harness: Harness, server: Running, model: str, batch: int) -> dict[str, Any]:
    """Return what a server answers to several clients: rows a second, and its padding."""
    sent = [plan.workload(model, batch, number) for number in range(REQUESTS)]
    file = requests_file((one.request for one in sent), harness.folder / f"requests-{batch}")
    is_slow = plan.device == "cpu" and model != "minilm"
    clients = (4 if is_slow else 64) if batch == 1 else (2 if is_slow else 8)
    harness.load(server, file, clients, min(1.0, plan.load_seconds))
    before = _tokens(server)
    rates = [
        batch * harness.load(server, file, clients, plan.load_seconds).rate for _ in range(ROUNDS)
    ]
    after = _tokens(server)
    change = {kind: after[kind] - before.get(kind, 0.0) for kind in after}
    useful = change.get("real", 0.0)
    tokens = useful + change.get("padding", 0.0)
    return {
        "clients": clients,
        "useful_tokens_per_row": tokens_per_row(sent),
        "rows_per_second": round(statistics.median(rates), 2),
        "rows_per_second_interval": [round(min(rates), 2), round(max(rates), 2)],
        "useful_share": round(useful / tokens, 4) if useful else None,
    }


def tokens_per_row(sent: Sequence[Workload]) -> float | None:
    """Return the mean useful tokens of a row; None for images."""
    useful = [one.useful_tokens for one in sent if one.useful_tokens is not None]
    return round(sum(useful) / sum(one.shape.batch for one in sent), 2) if useful else None


def _tokens(server: Running) -> dict[str, float]:
    """Return the tokens of our server so far, by kind; Triton counts none."""
    status, body = server.candidate.request(METRICS)
    return (
        {kind: float(value) for kind, value in TOKENS.findall(body.decode())}
        if (status == 200)
        else {}
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
