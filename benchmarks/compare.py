"""The ablation of MiniLM on this machine's CPU, killed in the middle and resumed; then once more.

Candidates are built, deployed to a local cloud of the benchmark's own, and loaded, all for real.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from benchmarks.context import Context
from benchmarks.measure import Measure, at_least, at_most, with_command
from benchmarks.trees import MODEL, read_yaml, tree_with, write_yaml
from local_cloud import lifecycle
from roundhouse.compare.document import kendall_tau
from roundhouse.paths import Paths
from roundhouse.processes import Command
from roundhouse.session import cloud_folder

CHANGES = {
    "engine": {
        "precision": "int8",
        "calibration": {"samples": 64},
        "sensitivity_search": None,
    },
    # ONNX Runtime's dynamic INT8 costs 0.99 of the cosine, and is one of the candidates.
    "accuracy": {"budget": {"mean": 0.98, "worst": 0.9, "neighbours": None}},
    "serving": {"server": "python", "dynamic_batching": None},
    "endpoint": {"instance_type": "ml.c7i.large", "latency_slo_ms": 500},
}
BUILDS = {"at_once": 2, "poll_seconds": 1}
GRID = {
    "runtime": ["pytorch", "onnxruntime"],
    "precision": ["fp32", "int8"],
    "batching": ["off", "on"],
    "instances": ["1", "2"],
}
"""Sixteen cells, of which `check` refuses the four of PyTorch in INT8."""
LONGEST_SECONDS = 12 * 60
KILLED_AFTER = 3
LEAST_TAU = 0.8
COMMAND = (
    "make bench BENCH=compare: MiniLM in the local cloud, every cell built, deployed, loaded, "
    "deleted; SLO 500 ms"
)


def compare(context: Context) -> list[Measure]:
    """Measure the ablation twice. Raises ValueError where a run fails."""
    folder = context.empty_folder("compare")
    root = context.paths.code
    tree = tree_with(root, folder / "tree", CHANGES)
    environment = tree / "environments" / "local.yaml"
    write_yaml(environment, read_yaml(environment) | {"builds": BUILDS})
    paths = Paths(code=root, tree=tree, build=folder / "build")
    lifecycle.start(paths.code, cloud_folder(paths))
    try:
        begin = time.monotonic()
        _run(context, paths, seed=1, kill_after=KILLED_AFTER)
        kept = list((paths.build / "compare" / "local" / MODEL / "results").glob("*.json"))
        first = _run(context, paths, seed=1)
        seconds = time.monotonic() - begin
        begin = time.monotonic()
        second = _run(context, paths, seed=2)
        again = time.monotonic() - begin
    finally:
        lifecycle.stop(cloud_folder(paths))
    (folder / "runs.json").write_text(json.dumps([first, second], indent=1) + "\n")
    return with_command(COMMAND, _measures(first, second, len(kept), seconds, again))


def _run(context: Context, paths: Paths, *, seed: int, kill_after: int = 0) -> dict[str, Any]:
    """Run one process; what it printed last, or nothing where it was to be killed."""
    words = (str(paths.tree), str(paths.build), json.dumps(GRID), str(seed), str(kill_after))
    command = Command(
        argv=(sys.executable, "-m", "benchmarks.compared_cells", *words),
        folder=context.paths.code,
        environment=context.variables,
    )
    outcome = context.run(command, lambda line: print(f"    {line}", flush=True))
    if (outcome.code != 0) != bool(kill_after):
        raise ValueError(f"the comparison ended with code {outcome.code}: {outcome.last_lines()}")
    if kill_after:
        return {}
    result: dict[str, Any] = json.loads(outcome.output.strip().splitlines()[-1])
    return result


def _measures(
    first: dict[str, Any], second: dict[str, Any], kept: int, seconds: float, again: float
) -> list[Measure]:
    rankings = [ranking(run["rates"]) for run in (first, second)]
    cells = len(first["rates"])
    measured = sum(rate is not None for rate in first["rates"].values())
    # The control is one load more.
    repeated = len(first["loads"]) - 1 - (len(first["rates"]) - kept)
    controls = [b / a for run in (first, second) for _, a, b in run["controls"] if a and b]
    return [
        Measure("cells", cells, "cells"),
        Measure("cells that held the SLO, first run", measured, "cells"),
        Measure("first run, killed and resumed", round(seconds), "s", at_most(LONGEST_SECONDS)),
        Measure("second run", round(again), "s"),
        Measure(
            "finished cells loaded again after the kill",
            repeated,
            "cells",
            at_most(0),
        ),
        Measure("Kendall's tau of two runs", kendall_tau(*rankings), "", at_least(LEAST_TAU)),
        *(Measure("one cell measured twice", ratio, "of its rate") for ratio in controls),
        *(
            Measure(name, rate or 0.0, "requests/s", low=min(pair), high=max(pair))
            for name, rate in first["rates"].items()
            for pair in [(rate or 0.0, second["rates"][name] or 0.0)]
        ),
    ]


def ranking(rates: dict[str, float | None]) -> list[str]:
    """Return names by rate, the highest first; those that held nothing last, by name."""
    return sorted(rates, key=lambda name: (-(rates[name] or 0.0), name))
