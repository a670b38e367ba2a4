"""How long a changed batching takes: of the plan that is there, against compiling it again.

On this machine's CPU; for a GPU a compilation takes longer, and packaging as long.
"""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

from benchmarks.child import Usage, measure_usage
from benchmarks.context import Context
from benchmarks.measure import Measure, of_rounds, with_command
from benchmarks.trees import build_command, tree_with
from onboarding.names import RECORD_NAME

BATCHING = {"serving": {"dynamic_batching": {"max_queue_delay_us": 7}}}
COMMAND = "make bench BENCH=repackaging: builds of the shipped model for environment local"
FIRST, COMPILED, PACKAGED = "first build", "compiled again", "packaged anew"


def repackaging(context: Context) -> list[Measure]:
    """Measure rounds of a first build, and of changed batching without its plan and with it.

    A build without the plan has the networks of the first one. Raises ValueError when a build
    fails, or compiles where it should not.
    """
    folder, tree = context.empty_folder("repackaging"), context.paths.tree
    trees = {
        FIRST: tree_with(tree, folder / "first", {}),
        COMPILED: tree_with(tree, folder / "changed", BATCHING),
    }
    rounds = [
        _round(context, folder / f"round-{number}", trees, random.Random(number))
        for number in range(context.rounds(3))
    ]
    measures = [
        of_rounds(f"{name}: {what}", [getattr(usages[name], field) for usages in rounds], "s")
        for name in (FIRST, COMPILED, PACKAGED)
        for what, field in (("wall time", "seconds"), ("processor", "processor_seconds"))
    ]
    for name in (FIRST, COMPILED):
        ratios = [usages[name].seconds / usages[PACKAGED].seconds for usages in rounds]
        measures.append(of_rounds(f"{name} / {PACKAGED}, wall time", ratios, "x"))
    return with_command(COMMAND, measures)


def _round(
    context: Context, folder: Path, trees: dict[str, Path], order: random.Random
) -> dict[str, Usage]:
    """Return the usage of each build; the last two in random order."""
    store, networks = folder / "store", folder / "networks-only"
    usages = {FIRST: _build(context, trees[FIRST], folder / FIRST, store)}
    shutil.copytree(store / "networks", networks / "networks")
    stores = {COMPILED: networks, PACKAGED: store}
    for name in order.sample(tuple(stores), len(stores)):
        usages[name] = _build(context, trees[COMPILED], folder / name, stores[name])
    counts = {name: _packaged_engines(stores[name]) for name in stores}
    if counts != {COMPILED: 0, PACKAGED: 1}:
        raise ValueError(f"engines that were packaged of a plan: {counts}")
    return usages


def _build(context: Context, tree: Path, work: Path, store: Path) -> Usage:
    command = build_command(context, tree, work / "out", store)
    return measure_usage(command, work / "usage.json", context.run)


def _packaged_engines(store: Path) -> int:
    """Return how many engines of a store were made of another's plan."""
    records = store.glob(f"engines/*/{RECORD_NAME}")
    documents = [json.loads(path.read_text(encoding="utf-8")) for path in records]
    return sum("repackaged" in document for document in documents)
