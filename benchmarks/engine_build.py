"""How long the builder takes, how much memory it needs, and how accurate its INT8 networks are."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.child import Usage, measure_usage
from benchmarks.context import Context
from benchmarks.measure import Bar, Measure, at_least, at_most, with_command
from benchmarks.trees import SEARCH, build_command, tree_with

QDQ = "int8 Q/DQ network"
ACCURACY = {
    "mean": "mean cosine",
    "worst": "worst cosine",
    "nearest_neighbour_agreement": "same nearest neighbour",
}
"""Fields of an accuracy record, and their names in measures."""


@dataclass(frozen=True, kw_only=True)
class Search:
    """A build with a sensitivity search: its accuracy budget, and the bars of its network."""

    name: str
    budget: Mapping[str, float]
    accuracy: Mapping[str, float]
    int8_share: float


SEARCHES = (
    Search(
        name="search, budget 0.997 / 0.985",
        budget={"mean": 0.997, "worst": 0.985},
        accuracy={"mean": 0.997, "worst": 0.985, "nearest_neighbour_agreement": 0.90},
        int8_share=0.65,
    ),
    Search(
        name="search, budget 0.99",
        budget={"mean": 0.99},
        accuracy={"mean": 0.99},
        int8_share=0.80,
    ),
)
"""Much INT8 with hardly a difference, and as much INT8 as possible."""


@dataclass(frozen=True, kw_only=True)
class Build:
    """One build by the real command line: its usage and the manifest that it published."""

    command: str
    usage: Usage
    manifest: Mapping[str, Any]

    def int8_share(self, name: str, bar: Bar | None = None) -> Measure:
        """Return the share of the network's multiplications that are in INT8."""
        share = float(self.manifest["quantization"]["int8_share_of_matmul_macs"])
        return Measure(f"{name}: INT8 share", share, "of MatMul MACs", bar)

    def accuracy(self, name: str, bars: Mapping[str, float]) -> list[Measure]:
        """Return the accuracy of the INT8 network."""
        records = self.manifest["accuracy"]
        record = next(record for record in records if record["subject"] == QDQ)
        unit = f"of {record['samples']} fresh sentences"
        return [
            Measure(
                f"{name}: {text}",
                record[field],
                unit,
                at_least(bars[field]) if field in bars else None,
            )
            for field, text in ACCURACY.items()
        ]


def engine_build(context: Context) -> list[Measure]:
    """Measure builds without a search, of a known key, and with each search.

    Raises ValueError when a build fails.
    """
    folder = context.empty_folder("engine_build")
    store, engine = folder / "store", {"engine": {"sensitivity_search": None}}
    tree = tree_with(context.paths.tree, folder / "tree", engine)
    plain = _build(context, tree, folder / "plain", store)
    known = _build(context, tree, folder / "known", store)
    measures = _measures_without_search(plain, known)
    for number, search in enumerate(SEARCHES):
        changes = {
            "engine": {"sensitivity_search": {"dataset": SEARCH}},
            "accuracy": {"budget": {"worst": None, "neighbours": None, **search.budget}},
        }
        work = folder / f"search-{number}"
        tree = tree_with(context.paths.tree, work / "tree", changes)
        measures += _measures_of_search(_build(context, tree, work, work / "store"), search)
    return measures


def _build(context: Context, tree: Path, work: Path, store: Path) -> Build:
    command = build_command(context, tree, work / "out", store)
    usage = measure_usage(command, work / "usage.json", context.run)
    entry = max(store.glob("engines/*/lock-entry.json"))
    manifest = json.loads(entry.read_text(encoding="utf-8"))["manifest"]
    text = str(command).replace(f"{context.paths.code}/", "")
    return Build(command=text, usage=usage, manifest=manifest)


def _measures_without_search(plain: Build, known: Build) -> list[Measure]:
    measures = [
        Measure("whole CPU build, no search", plain.usage.seconds, "s", at_most(60)),
        Measure("its peak memory", plain.usage.peak_mib, "MiB", at_most(3072)),
        plain.int8_share("fixed recipe"),
        *plain.accuracy("fixed recipe", {}),
    ]
    known_key = Measure("known key", known.usage.seconds, "s", at_most(2))
    return [*with_command(plain.command, measures), *with_command(known.command, [known_key])]


def _measures_of_search(build: Build, search: Search) -> list[Measure]:
    usage = build.usage
    measures = [
        Measure(f"{search.name}: whole CPU build", usage.seconds, "s", at_most(300)),
        Measure(f"{search.name}: peak memory", usage.peak_mib, "MiB", at_most(3072)),
        build.int8_share(search.name, at_least(search.int8_share)),
        *build.accuracy(search.name, search.accuracy),
    ]
    return with_command(build.command, measures)
