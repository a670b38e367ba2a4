"""`python -m benchmarks [NAME …]`: print a table for each, and write build/bench/NAME.json."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console

from benchmarks.context import Context
from benchmarks.measure import Measure, circumstances, table, write
from benchmarks.runtimes.comparison import runtimes
from benchmarks.servers.comparison import servers
from benchmarks.text_generation.comparison import text_generation
from roundhouse.paths import find_paths
from roundhouse.processes import Processes
from roundhouse.settings import inherited

BENCHMARKS: dict[str, Callable[[Context], list[Measure]]] = {
    "runtimes": runtimes,
    "servers": servers,
    "text_generation": text_generation,
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
    console.print(table(f"{name}, {today.machine}, {today.date}", measures))
    console.print(f"written to {path.relative_to(context.paths.code)}")
    return all(measure.verdict != "missed" for measure in measures)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
