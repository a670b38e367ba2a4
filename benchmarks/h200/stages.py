"""Where a server's time goes, by its own Prometheus metrics before and after a load."""

from __future__ import annotations

import re
from collections.abc import Mapping

SECONDS = re.compile(
    r"^roundhouse_(stage|engine|queue|request)_seconds_(sum|count)"
    r'(?:\{(?:stage="(\w+)")?[^}]*\})? (\S+)$',
    re.M,
)
ROWS = re.compile(r"^roundhouse_batch_rows_(sum|count)(?:\{[^}]*\})? (\S+)$", re.M)
Sums = Mapping[str, float]


def sums(exposition: str) -> Sums:
    """Return sums and counts by name, of Prometheus's text."""
    rows = {f"rows_{kind}": float(value) for kind, value in ROWS.findall(exposition)}
    seconds = {
        f"{stage or metric}_{kind}": float(value)
        for metric, kind, stage, value in SECONDS.findall(exposition)
    }
    return {**seconds, **rows}


def means(before: Sums, after: Sums) -> dict[str, float]:
    """Return mean milliseconds of stages, requests and batches (`engine`), and a batch's rows."""
    change = {name: after[name] - before.get(name, 0.0) for name in after}
    names = sorted({name.rpartition("_")[0] for name in after})
    return {
        name: round((1.0 if name == "rows" else 1e3) * change[f"{name}_sum"] / count, 4)
        for name in names
        if (count := change.get(f"{name}_count", 0.0))
    }
