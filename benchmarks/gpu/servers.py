"""Servers of one FP16 plan, of the same module in PyTorch, and what clients wait for each.

The eight cells of the ablation are our Python server, whose engine is the plan or the module; a
text has 128 tokens. Servers have the lower half of the cores, clients the upper.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.gpu.engines import Subject
from benchmarks.gpu.networks import NETWORKS, sizes
from benchmarks.runtimes.archive import embedder, write_cpu_archive, write_plan_archive
from benchmarks.runtimes.servers import (
    REPOSITORY,
    Candidate,
    address,
    free_port,
    python_server,
    server_python,
    start_server,
)
from onboarding.manifest import ProfileRecord
from roundhouse.dev.gpu.servers import triton_server
from roundhouse.errors import NotReadyError
from roundhouse.measure.compare.cells import Cell, cells
from tests.gpu.load import IMAGE_VARIABLES, cores, drive
from tests.gpu.networks import SEQUENCE, SHORTEST
from tests.unit.engine_build.tiny import word_tokenizer

NETWORK = "bert-large"
CLIENTS = {1: (1, 1), 8: (1, 8), 32: (4, 8), 128: (4, 32)}
"""Processes, and connections of each."""
Point = tuple[str, int]
"""A server, and how many clients it has."""
AXES = {"runtime": ("pytorch", "tensorrt"), "batching": ("off", "on"), "instances": ("1", "2")}
PROFILE = ProfileRecord(batch=(1, 8, 32), sequence=(SHORTEST, SEQUENCE, SEQUENCE))
TRITON = "Triton"
FRAMEWORKS = {
    "FastAPI": "benchmarks.gpu.fastapi_server",
    "LitServe": "benchmarks.gpu.litserve_server",
}


def ablation() -> tuple[Cell, ...]:
    """Return the cells, as `roundhouse compare` names them."""
    return cells(AXES)


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What servers are started with."""

    variables: Mapping[str, str]
    """The environment of the interpreter that serves."""
    triton: Path | None
    """The program tritonserver; None where it is not here."""
    compute_capability: str


def write_archives(subject: Subject, machine: Machine) -> tuple[dict[str, Path], Path]:
    """Return the plan's archives, by whether rows are batched, and the tokenizer.

    On a CPU they are of the network in ONNX Runtime, so that the command can be tried.
    """
    tokenizer = subject.folder / "tokenizer.json"
    word_tokenizer().save(str(tokenizer))
    width = subject.source.module.encoder.config.hidden_size
    archives = {"on": subject.folder / "batched", "off": subject.folder / "single"}
    for batching, archive in archives.items():
        if not archive.is_dir():
            most = 1 if batching == "off" else PROFILE.batch[2]
            served = embedder(subject.name, subject.source.inputs, width, PROFILE, most)
            if subject.device == "cpu":
                write_cpu_archive(archive, served, subject.network("fp32"), tokenizer)
                continue
            plan, capability = subject.plan("fp16"), machine.compute_capability
            write_plan_archive(archive, served, plan, tokenizer, capability)
    return archives, tokenizer


def candidates(
    subject: Subject, archives: Mapping[str, Path], tokenizer: Path, machine: Machine
) -> Iterator[Candidate]:
    """Yield every server; Triton only where its program is here."""
    pytorch = {
        **machine.variables,
        "TORCH_MODEL": NETWORKS[subject.name][0],
        "TORCH_SIZES": json.dumps(sizes(subject.name, tiny=subject.tiny)),
        "TORCH_DEVICE": subject.device,
        "TORCH_PRECISION": "fp16",
    }
    for cell in ablation():
        values = dict(cell.values)
        is_plan = values["runtime"] == "tensorrt"
        module = "container.server" if is_plan else "tests.gpu.torch_server"
        variables = machine.variables if is_plan else pytorch
        slots = {"ROUNDHOUSE_SLOTS": values["instances"], **IMAGE_VARIABLES}
        archive = archives[values["batching"]]
        yield python_server(cell.name, module, sys.executable, archive, {**variables, **slots})
    for name, module in FRAMEWORKS.items():
        port = free_port()
        own = {"TOKENIZER": str(tokenizer), **address(port)}
        argv = (sys.executable, "-m", module)
        yield Candidate(
            name=name, argv=argv, port=port, folder=REPOSITORY, environment={**pytorch, **own}
        )
    if machine.triton is not None:
        port = free_port()
        own = {**machine.variables, "SM_MODEL_DIR": str(archives["on"]), **address(port)}
        python = server_python()
        command, environment = triton_server(python, machine.triton, subject.name, own)
        folder = subject.folder
        yield Candidate(
            name=TRITON, argv=command, port=port, folder=folder, environment=environment
        )


def measure_servers(
    subject: Subject, machine: Machine, *, seconds: float, rounds: int, only: Sequence[str] = ()
) -> Iterator[list[dict[str, Any]]]:
    """Yield a row for each server and count of clients, and one for each that failed, each round.

    `seconds`: of one load; each round has every load once, in random order; `only`: names of
    servers, by default all. Raises OSError where there is no plan.
    """
    archives, tokenizer = write_archives(subject, machine)
    servers, rows = {}, []
    try:
        for one in candidates(subject, archives, tokenizer, machine):
            if not only or one.name in only:
                servers[one.name] = replace(one, argv=(*cores(0, 1 / 2), *one.argv))
    except NotReadyError as fault:
        rows.append({"server": TRITON, "failed": str(fault)[:300]})
    if machine.triton is None:
        rows.append({"server": TRITON, "failed": "tritonserver is not on this machine"})
    with ExitStack() as stack:
        ready: dict[str, Candidate] = {}

        def start(server: Candidate) -> dict[str, Any] | None:
            log = subject.folder / "logs" / f"{server.name}.log"
            log.unlink(missing_ok=True)
            try:
                ready[server.name] = stack.enter_context(start_server(server, log))
            except (ValueError, OSError) as fault:
                print(f"  {server.name}: {fault}", flush=True)
                return {"server": server.name, "failed": " ".join(str(fault).split())[:600]}
            print(f"  {server.name} is ready", flush=True)
            return None

        with ThreadPoolExecutor(len(servers) or 1) as pool:
            rows += filter(None, pool.map(start, servers.values()))
        for measured in _load_rows(ready, machine, seconds, rounds):
            yield [*measured, *rows]


def _load_rows(
    servers: Mapping[str, Candidate], machine: Machine, seconds: float, rounds: int
) -> Iterator[list[dict[str, Any]]]:
    points = [(name, clients) for name in sorted(servers) for clients in CLIENTS]
    rates: dict[Point, list[float]] = {point: [] for point in points}
    spans: dict[Point, list[float]] = {point: [] for point in points}
    failed: dict[Point, str] = {}
    for number in range(rounds):
        for point in random.Random(number).sample(points, len(points)):
            if point in failed:
                continue
            (name, clients), variables = point, {**os.environ, **machine.variables}
            processes, connections = CLIENTS[clients]
            try:
                measured = drive(
                    servers[name].port,
                    1,
                    processes,
                    connections,
                    seconds,
                    is_plain=name in FRAMEWORKS,
                    variables=variables,
                )
            except ValueError as fault:
                failed[point] = str(fault)
                continue
            rates[point].append(measured["rate"])
            spans[point] += measured["spans"]
        yield _rows(points, rates, spans, failed)


def _rows(
    points: Sequence[Point],
    rates: Mapping[Point, Sequence[float]],
    spans: Mapping[Point, Sequence[float]],
    failed: Mapping[Point, str],
) -> list[dict[str, Any]]:
    """Return the rows of all rounds so far."""
    rows = []
    for name, clients in points:
        row: dict[str, Any] = {"server": name, "clients": clients}
        if (reason := failed.get((name, clients))) is not None:
            rows.append(row | {"failed": reason})
            continue
        found, waits = rates[name, clients], spans[name, clients]
        p50, p95, p99 = (round(float(np.percentile(waits, part)), 3) for part in (50, 95, 99))
        measured_row = {
            "requests_per_second": round(statistics.median(found), 1),
            "requests_per_second_interval": [round(min(found), 1), round(max(found), 1)],
            "p50_ms": p50,
            "p95_ms": p95,
            "p99_ms": p99,
            "requests": len(waits),
        }
        rows.append(row | measured_row)
    return rows
