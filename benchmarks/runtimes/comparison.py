"""The same inputs in every runtime and server: `benchmarks.runtimes` in the builder's Python."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping
from typing import Any

from benchmarks.context import Context
from benchmarks.measure import Measure, with_command
from benchmarks.servers.fixtures import minilm
from roundhouse.processes import Command


def runtimes(context: Context) -> list[Measure]:
    """Measure the models in every runtime and server of this machine. Raises ValueError."""
    folder, python = context.folder("runtimes"), str(context.paths.venv_python("builder"))
    shutil.copy(minilm(context, folder).tokenizer, folder / "tokenizer.json")
    out = folder / "runtimes.json"
    argv = (python, "-m", "benchmarks.runtimes", str(folder), str(out))
    command = Command(argv=argv, folder=context.paths.code, environment=context.variables)
    outcome = context.run(command, lambda line: print(f"    {line}", flush=True))
    if outcome.code != 0:
        raise ValueError(f"{command} ended with {outcome.code}: {outcome.last_lines()}")
    rows = json.loads(out.read_text(encoding="utf-8"))["rows"]
    return with_command("make bench BENCH=runtimes", row_measures(rows))


def row_measures(rows: Iterable[Mapping[str, Any]]) -> Iterable[Measure]:
    """Return the latency, the rate and the worst cosine of each row."""
    for row in rows:
        name = f"{row['model']}, {row['runtime']} {row['precision']}, batch {row['batch']}"
        for field, unit in (("p50", "ms"), ("rows_per_second", "rows/s")):
            key = "p50_ms" if field == "p50" else field
            low, high = row[f"{field}_interval"]
            text = f"{name}: {field.replace('_', ' ')}"
            yield Measure(text, row[key], unit, low=low, high=high)
        yield Measure(f"{name}: worst cosine", row["cosine_worst"], "")
