"""`python -m benchmarks.gpu FOLDER OUT`: engines and servers on this machine's GPU, in one JSON.

First networks and plans are made in FOLDER, which keeps them between runs; then each network runs
in every runtime, and each server under load. OUT is written after each network and after
each round of loads: a run that is cut keeps what it has, and a later run replaces only what it
measures again.
`python -m benchmarks.gpu.page OUT` prints its tables.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import shutil
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu.engines import Subject, device, measure
from benchmarks.gpu.networks import NETWORKS
from benchmarks.gpu.preparation import Preparation, Result, Results
from benchmarks.gpu.servers import NETWORK, Machine, measure_servers
from engine_build.machine import description
from roundhouse import settings
from roundhouse.dev.gpu.machine import find_triton, python_variables
from roundhouse.paths import Paths
from tests.gpu.__main__ import PACKAGES, ROOT, commit, version_of

PARTS = ("prepare", "engines", "servers")
PREPARED = "prepared.json"
MORE_PACKAGES = ("onnxruntime-gpu", "fastapi", "litserve")
Document = dict[str, Any]


def main(arguments: Sequence[str]) -> int:
    """Measure, and return 1 where nothing was measured."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", type=_words(PARTS), default=list(PARTS), metavar="PART,…")
    parser.add_argument("--networks", type=_words(tuple(NETWORKS)), default=list(NETWORKS))
    parser.add_argument("--prepare-seconds", type=float, default=480.0, help="then work is stopped")
    parser.add_argument("--jobs", type=int, default=4, help="compilations at once")
    parser.add_argument("--seconds", type=float, default=25.0, help="for a network's latencies")
    parser.add_argument("--load-seconds", type=float, default=0.8, help="of one load")
    parser.add_argument("--rounds", type=int, default=3, help="of loads")
    parser.add_argument("--servers", default="", help="names, by default all")
    parser.add_argument("--tiny", action="store_true", help="networks of one layer, to try this")
    chosen = parser.parse_args(arguments)
    chosen.folder.mkdir(parents=True, exist_ok=True)
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    subjects = [
        Subject(name=name, folder=chosen.folder.resolve() / name, device=device(), tiny=chosen.tiny)
        for name in chosen.networks
    ]
    document = _document(chosen.out, chosen.tiny)
    if "prepare" in chosen.only:
        keep = partial(_keep_results, chosen.folder / PREPARED)
        Preparation(subjects, seconds=chosen.prepare_seconds, jobs=chosen.jobs, keep=keep).run()
    results = _known_results(chosen.folder / PREPARED)
    if "engines" in chosen.only:
        for subject in subjects:
            _measure_engines(document, subject, results, chosen.seconds)
            _write(chosen.out, document)
    if "servers" in chosen.only and any(subject.name == NETWORK for subject in subjects):
        subject = next(subject for subject in subjects if subject.name == NETWORK)
        only = [name for name in chosen.servers.split(",") if name]
        for rows in _servers(subject, chosen.load_seconds, chosen.rounds, only):
            document["servers"] = rows
            _write(chosen.out, document)
    return 0 if document["engines"] or document["servers"] else 1


def _words(known: tuple[str, ...]) -> Any:
    def words(text: str) -> list[str]:
        chosen = text.split(",")
        if unknown := sorted(set(chosen) - set(known)):
            raise argparse.ArgumentTypeError(f"{unknown[0]} is not one of {', '.join(known)}")
        return chosen

    return words


def _document(out: Path, tiny: bool) -> Document:
    """Return the document of an earlier run on this GPU, day and commit, or a new one."""
    facts = {
        "gpu": torch.cuda.get_device_name(0) if torch.cuda.is_available() else None,
        "machine": description(),
        "commit": commit(),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "versions": {
            name: version
            for name in (*PACKAGES, *MORE_PACKAGES, "tensorrt", "tensorrt_cu12_bindings")
            if (version := version_of(name)) is not None
        },
        "command": "python -m benchmarks.gpu",
        "tiny": tiny,
    }
    if out.is_file():
        known: Document = json.loads(out.read_text(encoding="utf-8"))
        if all(known.get(name) == value for name, value in facts.items()):
            return known
    return {**facts, "engines": {}, "servers": []}


def _keep_results(path: Path, results: Results) -> None:
    """Write the results of a preparation beside those of other networks."""
    known = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    known |= {"|".join(key): asdict(result) for key, result in results.items()}
    path.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")


def _known_results(path: Path) -> Results:
    known = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    results: Results = {}
    for text, fields in known.items():
        network, runtime, precision = text.split("|")
        results[network, runtime, precision] = Result(**fields)
    return results


def _measure_engines(
    document: Document, subject: Subject, results: Results, seconds: float
) -> None:
    own = {key[1:]: result for key, result in results.items() if key[0] == subject.name}
    failures = {key: result.reason for key, result in own.items() if result.reason is not None}
    try:
        rows = measure(subject, failures, seconds)
    except Exception as fault:  # the other networks stay worth having
        traceback.print_exc()
        rows = [{"failed": f"{type(fault).__name__}: {fault}"[:300]}]
    for row in rows:
        result = own.get((row.get("runtime", ""), row.get("precision", "")))
        row["prepare_seconds"] = None if result is None else result.seconds
    document["engines"][subject.name] = rows


def _servers(
    subject: Subject, seconds: float, rounds: int, only: Sequence[str]
) -> Iterator[list[dict[str, Any]]]:
    """Yield all rows after each round."""
    paths = Paths(code=ROOT, tree=ROOT, build=ROOT / "build")
    variables: Mapping[str, str] = python_variables(paths, settings.inherited())
    capability = "{}.{}".format(*torch.cuda.get_device_capability()) if _has_gpu() else "9.0"
    machine = Machine(
        variables=variables,
        triton=find_triton(os.environ, shutil.which),
        compute_capability=capability,
    )
    try:
        yield from measure_servers(subject, machine, seconds=seconds, rounds=rounds, only=only)
    except Exception as fault:  # the engines stay worth having
        traceback.print_exc()
        yield [{"failed": f"{type(fault).__name__}: {fault}"[:300]}]


def _has_gpu() -> bool:
    return bool(torch.cuda.is_available())


def _write(out: Path, document: Document) -> None:
    out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(f"{out} is written", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
