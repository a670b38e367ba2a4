"""`python -m benchmarks [NAME …]`.

Runs benchmarks, prints a table each, writes build/bench/NAME.json.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from rich.console import Console

from benchmarks.bert_large import bert_large
from benchmarks.deploys import deploys
from benchmarks.engine_build import engine_build
from benchmarks.measure import Measure, circumstances, table, write
from benchmarks.processes import processes
from benchmarks.scaling_run import scaling
from benchmarks.server_cpu import server_cpu, server_cpu_wide
from benchmarks.server_echo import server_echo
from benchmarks.soak import soak
from benchmarks.synth import synth
from roundhouse.paths import Paths, find_paths
from roundhouse.processes import Processes
from roundhouse.settings import inherited

Benchmark = Callable[[Paths, Processes, Mapping[str, str]], list[Measure]]
BENCHMARKS: dict[str, Benchmark] = {
    "engine_build": engine_build,
    "bert_large": bert_large,
    "server_cpu": server_cpu,
    "server_cpu_wide": server_cpu_wide,
    "server_echo": server_echo,
    "soak": soak,
    "processes": processes,
    "scaling": scaling,
    "synth": synth,
    "deploys": deploys,
}


def main(arguments: Sequence[str]) -> int:
    """0: every bar was held; 1: one was missed, or a benchmark could not run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"one of {', '.join(BENCHMARKS)}; default: all"
    )
    names = parser.parse_args(arguments).names
    unknown = sorted(set(names) - set(BENCHMARKS))
    if unknown:
        parser.error(f"unknown benchmark {unknown[0]}; allowed: {', '.join(BENCHMARKS)}")
    at, console = find_paths(Path(__file__).parent), Console(width=130)
    held = [_run(name, at, console) for name in names or BENCHMARKS]
    return 0 if all(held) else 1


def _run(name: str, at: Paths, console: Console) -> bool:
    print(f"=== {name}", flush=True)
    path = at.build / "bench" / f"{name}.json"
    try:
        measures = BENCHMARKS[name](at, Processes(), inherited())
    except ValueError as error:
        console.print(f"{name} could not be measured: {error}", markup=False, highlight=False)
        return False
    machine_today = circumstances()
    write(measures, machine_today, path)
    console.print(table(f"{name}, {machine_today.machine}, {machine_today.date}", measures))
    console.print(f"written to {path.relative_to(at.code)}")
    return all(measure.verdict != "missed" for measure in measures)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
