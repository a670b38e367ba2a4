"""How long the builder takes, how much memory it needs, and how accurate its INT8 networks are."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.child import Usage, measure_usage
from benchmarks.measure import Bar, Measure
from benchmarks.trees import MODEL, SEARCH, tree_with
from roundhouse.paths import Paths
from roundhouse.processes import Command, Processes

QDQ = "int8 Q/DQ network"
EASY = {"mean": 0.997, "worst": 0.985}
"""The budget of the first bar: much INT8, hardly a difference."""
HARD = {"mean": 0.99}
"""The budget of the second bar: as much INT8 as possible."""


@dataclass(frozen=True, kw_only=True)
class Build:
    """One build by the real command line, and what it left."""

    command: Command
    taken: Usage
    result: Mapping[str, Any]
    store: Path


def engine_build(at: Paths, run: Processes, variables: Mapping[str, str]) -> list[Measure]:
    """Every measure of the builder. Raises ValueError when a build fails."""
    place = at.build / "bench" / "engine_build"
    shutil.rmtree(place, ignore_errors=True)
    plain = build(
        at,
        run,
        variables,
        tree_with(at.tree, place / "tree", {"engine": {"sensitivity_search": None}}),
        place / "plain",
    )
    known = build(at, run, variables, place / "tree", place / "known", store=plain.store)
    found = [*_plain(plain, known)]
    for name, budget in (("search", EASY), ("frontier", HARD)):
        changes = {
            "engine": {"sensitivity_search": {"dataset": SEARCH}},
            "accuracy": {"budget": {"worst": None, **budget}},
        }
        searched = build(
            at, run, variables, tree_with(at.tree, place / f"{name}-tree", changes), place / name
        )
        found += _searched(searched, name)
    return found


def build(
    at: Paths,
    run: Processes,
    variables: Mapping[str, str],
    tree: Path,
    place: Path,
    *,
    store: Path | None = None,
    more: tuple[str, ...] = (),
) -> Build:
    """Builds one engine into an empty work folder."""
    store = place / "store" if store is None else store
    wanted = (
        "--root",
        str(tree),
        "--environment",
        "local",
        "--model",
        MODEL,
        "--out",
        str(place / "out"),
        "--publish",
        str(store),
    )
    argv = (
        str(at.venv_python("builder")),
        "-m",
        "engine_build",
        *wanted,
        "--format",
        "json",
        *more,
    )
    command = Command(argv=argv, folder=at.code, environment=dict(variables))
    taken = measure_usage(command, place / "taken.json", run)
    if taken.code != 0:
        raise ValueError(
            f"{command} ended with code {taken.code}; its log is {place / 'out' / 'build.log'}"
        )
    return Build(command=command, taken=taken, result=_result(place, store), store=store)


def _result(place: Path, store: Path) -> Mapping[str, Any]:
    records = sorted(store.glob("engines/*/lock-entry.json"))
    return (
        json.loads(records[-1].read_text(encoding="utf-8"))["manifest"]
        if records
        else {"place": str(place)}
    )


def _plain(plain: Build, known: Build) -> list[Measure]:
    command = _report(plain)
    return [
        _at_most("whole CPU build, no search", plain.taken.seconds, "s", 60, command),
        _at_most("its peak memory", plain.taken.peak_mib, "MiB", 3072, command),
        _at_most("known key", known.taken.seconds, "s", 2, _report(known)),
        Measure(
            name="fixed recipe: INT8 share",
            value=_share(plain),
            unit="of MatMul MACs",
            command=command,
        ),
        *_accuracy("fixed recipe", plain, {}),
    ]


def _searched(searched: Build, name: str) -> list[Measure]:
    command = _report(searched)
    if name == "search":
        bars = {"mean": 0.997, "worst": 0.985, "nearest_neighbour_agreement": 0.90}
        share, what = 0.65, "search, budget 0.997 / 0.985"
    else:
        bars, share, what = {"mean": 0.99}, 0.80, "search, budget 0.99"
    return [
        _at_most(f"{what}: whole CPU build", searched.taken.seconds, "s", 300, command),
        _at_most(f"{what}: peak memory", searched.taken.peak_mib, "MiB", 3072, command),
        _at_least(f"{what}: INT8 share", _share(searched), "of MatMul MACs", share, command),
        *_accuracy(what, searched, bars),
    ]


def _accuracy(what: str, build: Build, bars: Mapping[str, float]) -> list[Measure]:
    record = next(record for record in build.result["accuracy"] if record["subject"] == QDQ)
    names = {
        "mean": "mean cosine",
        "worst": "worst cosine",
        "nearest_neighbour_agreement": "same nearest neighbour",
    }
    return [
        Measure(
            name=f"{what}: {text}",
            value=record[name],
            unit=f"of {record['samples']} fresh sentences",
            command=_report(build),
            bar=Bar(kind="at least", limit=bars[name]) if name in bars else None,
        )
        for name, text in names.items()
    ]


def _share(build: Build) -> float:
    return float(build.result["quantization"]["int8_share_of_matmul_macs"])


def _at_most(name: str, value: float, unit: str, limit: float, command: str) -> Measure:
    return Measure(
        name=name, value=value, unit=unit, command=command, bar=Bar(kind="at most", limit=limit)
    )


def _at_least(name: str, value: float, unit: str, limit: float, command: str) -> Measure:
    return Measure(
        name=name, value=value, unit=unit, command=command, bar=Bar(kind="at least", limit=limit)
    )


def _report(build: Build) -> str:
    """The command without this machine's folders."""
    code = str(build.command.folder)
    return str(build.command).replace(f"{code}/", "")
