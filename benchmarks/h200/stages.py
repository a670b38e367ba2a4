"""Where a server's time went between two looks at its own metrics."""

from __future__ import annotations

import re
from collections.abc import Mapping

SAMPLE = re.compile(
    r'^roundhouse_(stage|engine|queue|request)_seconds_(sum|count)(?:\{(?:stage="(\w+)")?[^}]*\})? (\S+)$',
    re.M,
)
ROWS = re.compile(r"^roundhouse_batch_rows_(sum|count)(?:\{[^}]*\})? (\S+)$", re.M)
Sums = Mapping[str, float]


def sums(exposition: str) -> Sums:
    """Sums and counts by name, of Prometheus's text."""
    found = {
        f"{stage or kind}_{what}": float(value)
        for kind, what, stage, value in SAMPLE.findall(exposition)
    }
    return {**found, **{f"rows_{what}": float(value) for what, value in ROWS.findall(exposition)}}


def means(before: Sums, after: Sums) -> dict[str, float]:
    """Mean milliseconds of a request's stages, of a request and of a batch (`engine`), and rows of
    a batch.
    """
    names = {name.rpartition("_")[0] for name in after}
    counts = {
        name: after.get(f"{name}_count", 0.0) - before.get(f"{name}_count", 0.0) for name in names
    }
    totals = {name: after[f"{name}_sum"] - before.get(f"{name}_sum", 0.0) for name in names}
    units = {name: 1.0 if name == "rows" else 1e3 for name in names}
    return {
        name: round(units[name] * totals[name] / counts[name], 4)
        for name in sorted(names)
        if counts[name]
    }
