"""`python -m benchmarks [NAME …]`: print a table for each, and write build/bench/NAME.json."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.measure import Context, Measure, circumstances, measures_table, with_command, write
from benchmarks.servers.comparison import servers
from benchmarks.servers.fixtures import minilm
from roundhouse.paths import find_paths
from roundhouse.processes import Command, Processes
from roundhouse.settings import inherited


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


BENCHMARKS: dict[str, Callable[[Context], list[Measure]]] = {
    "runtimes": runtimes,
    "servers": servers,
}


def main(arguments: Sequence[str]) -> int:
    """Return 0 when every bar was held, 1 when one was missed or could not be measured."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"one of {', '.join(BENCHMARKS)}; default: all"
    )
    names = parser.parse_args(arguments).names
    unknown = sorted(set(names) - set(BENCHMARKS))
    if unknown:
        parser.error(f"unknown benchmark {unknown[0]}; allowed: {', '.join(BENCHMARKS)}")
    paths = find_paths(Path(__file__).parent)
    context = Context(paths=paths, run=Processes(), variables=inherited())
    held = [_run(name, context, Console(width=130)) for name in names or BENCHMARKS]
    return 0 if all(held) else 1


def _run(name: str, context: Context, console: Console) -> bool:
    print(f"=== {name}", flush=True)
    try:
        measures = BENCHMARKS[name](context)
    except ValueError as error:
        console.print(f"{name} could not be measured: {error}", markup=False, highlight=False)
        return False
    path, today = context.paths.build / "bench" / f"{name}.json", circumstances()
    write(measures, today, path)
    console.print(measures_table(f"{name}, {today.machine}, {today.date}", measures))
    console.print(f"written to {path.relative_to(context.paths.code)}")
    return all(measure.verdict != "missed" for measure in measures)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
