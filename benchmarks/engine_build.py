"""How long the builder takes, how much memory it needs, and how accurate its INT8 networks are.

The networks are those of a GPU, made by `--networks-only` on this machine's CPU.
"""

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
from roundhouse.processes import Command

GPU = "dev"
"""The environment whose GPU the networks are for."""
ACCURACY = {
    "mean": "mean cosine",
    "worst": "worst cosine",
    "nearest_neighbour_agreement": "same nearest neighbour",
}
"""Fields of an accuracy record, and their names in measures."""


@dataclass(frozen=True, kw_only=True)
class Search:
    """Networks by a sensitivity search: its accuracy budget, and the bars of its network."""

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
class Networks:
    """The networks of a GPU by the real command line: usage, and what was kept beside INT8's."""

    command: str
    usage: Usage
    facts: Mapping[str, Any]
    record: Mapping[str, Any]
    """Accuracy of the network that the GPU compiles, its float part in FP16."""

    def int8_share(self, name: str, bar: Bar | None = None) -> Measure:
        """Return the share of the network's multiplications that are in INT8."""
        share = float(self.facts["int8_share_of_matmul_macs"])
        return Measure(f"{name}: INT8 share", share, "of MatMul MACs", bar)

    def accuracy(self, name: str, bars: Mapping[str, float]) -> list[Measure]:
        """Return the accuracy of the INT8 network."""
        unit = f"of {self.record['samples']} fresh sentences"
        return [
            Measure(
                f"{name}: {text}",
                self.record[field],
                unit,
                at_least(bars[field]) if field in bars else None,
            )
            for field, text in ACCURACY.items()
        ]


def engine_build(context: Context) -> list[Measure]:
    """Measure a CPU's build, one of a known key, and a GPU's networks with each search and none.

    Raises ValueError when a build fails.
    """
    folder = context.empty_folder("engine_build")
    store = folder / "store"
    tree = tree_with(context.paths.tree, folder / "tree", {})
    (plain, command), (known, again) = (
        _run(context, build_command(context, tree, folder / name / "out", store), folder / name)
        for name in ("plain", "known")
    )
    measures = [
        *with_command(
            command,
            [
                Measure("whole CPU build", plain.seconds, "s", at_most(60)),
                Measure("its peak memory", plain.peak_mib, "MiB", at_most(3072)),
            ],
        ),
        *with_command(again, [Measure("known key", known.seconds, "s", at_most(2))]),
    ]
    fixed = _networks(context, folder / "fixed", {"engine": {"sensitivity_search": None}})
    name = "fixed recipe"
    recipe = [fixed.int8_share(name), *fixed.accuracy(name, {})]
    measures += with_command(fixed.command, recipe)
    for number, search in enumerate(SEARCHES):
        changes = {
            "engine": {"sensitivity_search": {"dataset": SEARCH}},
            "accuracy": {"budget": {"worst": None, "neighbours": None, **search.budget}},
        }
        networks = _networks(context, folder / f"search-{number}", changes)
        measures += _measures_of_search(networks, search)
    return measures


def _run(context: Context, command: Command, work: Path) -> tuple[Usage, str]:
    usage = measure_usage(command, work / "usage.json", context.run)
    return usage, str(command).replace(f"{context.paths.code}/", "")


def _networks(context: Context, work: Path, changes: dict[str, Any]) -> Networks:
    tree = tree_with(context.paths.tree, work / "tree", changes, environment=GPU)
    out, store = work / "out", work / "store"
    command = build_command(context, tree, out, store, "--networks-only", environment=GPU)
    usage, text = _run(context, command, work)
    kept = [_read(path) for path in store.glob("networks/*/network.json")]
    (facts,) = (item["facts"] for item in kept if item["network_precision"] == "int8")
    halves = [_read(path) for path in store.glob("networks/*/half-*.json")]
    (record,) = (item for item in halves if item["subject"].startswith("int8 "))
    return Networks(command=text, usage=usage, facts=facts, record=record)


def _read(path: Path) -> dict[str, Any]:
    record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return record


def _measures_of_search(networks: Networks, search: Search) -> list[Measure]:
    usage = networks.usage
    measures = [
        Measure(f"{search.name}: networks of a GPU", usage.seconds, "s", at_most(300)),
        Measure(f"{search.name}: peak memory", usage.peak_mib, "MiB", at_most(3072)),
        networks.int8_share(search.name, at_least(search.int8_share)),
        *networks.accuracy(search.name, search.accuracy),
    ]
    return with_command(networks.command, measures)
