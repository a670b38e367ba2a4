"""Runs every row of this folder on the GPU of this machine, and writes one JSON.

`python -m tests.gpu [--minutes N] [FILE-OR-ROW ...]`: says what is missing, with the line that
helps; prints each row with its figures; writes build/gpu/<gpu>-<date>.json. Rows of an earlier run
with the same commit, TensorRT and driver on that day are kept where they are not run again. Exit
code 1 when a row failed, 5 when the machine lacks something or nothing ran.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from roundhouse.dev.gpu.machine import GpuMachine

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "tests" / "gpu"
RESULTS = ROOT / "build" / "gpu"
LOG = RESULTS / "pytest.log"
SOME_ROWS_NEED = ("torch", "transformers")
PACKAGES = ("numpy", "onnx", "onnxruntime", "torch", "transformers", "cuda-bindings")
"""Whose versions the JSON names."""
BUNDLE = ROOT / "bundle.json"
"""Names the commit where there is no git."""
GRACE_SECONDS = 60.0
"""For the row under way when the time is over; then it is killed."""
SHOWN_FIGURE = 60
Row = dict[str, Any]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu", description=__doc__)
    parser.add_argument("--minutes", type=float, default=20.0, help="rows begin no later than this")
    parser.add_argument("rows", nargs="*", default=[], help="files or rows; default: all")
    chosen = parser.parse_args(arguments)
    try:
        import pytest  # noqa: F401

        from roundhouse.dev.gpu.machine import missing, triton_line
    except ModuleNotFoundError as error:
        print(
            f"This Python ({sys.executable}) has no {error.name}; run `make test-gpu` in the "
            "folder that unpack.sh made, or after `make environments-dev`.",
            file=sys.stderr,
        )
        return 5
    machine = this_machine()
    lacks = list(missing(machine))
    for thing, line in lacks:
        print(f"missing: {thing}\n         {line}", flush=True)
    if lacks:
        print("Nothing ran: no row says anything about a machine that lacks these.")
        return 5
    for name in SOME_ROWS_NEED:
        if version_of(name) is None:
            print(f"Some rows are not run: {name} is not here; {sys.executable} -m pip install it.")
    if machine.triton is None:
        print(triton_line(machine))
    return run_tier(machine, chosen.rows or files(), chosen.minutes)


def run_tier(
    machine: GpuMachine, rows: Sequence[str], minutes: float, results: Path = RESULTS
) -> int:
    """Run rows, write the JSON after each, and return the exit code."""
    facts = machine_facts(machine)
    path = results / report_name(facts)
    known: dict[str, Row] = {row["row"]: row for row in earlier_rows(path, facts)}
    begin = time.monotonic()
    ran: list[Row] = []
    for row in run_rows(rows, begin + 60 * minutes):
        ran.append(row)
        known[row["row"]] = row
        write_report(path, facts, list(known.values()))
        print(format_row(row), flush=True)
    counts = count(ran)
    words = ", ".join(f"{number} {outcome}" for outcome, number in counts.items())
    print(f"\n{words}; {time.monotonic() - begin:.0f} s on {facts['gpu']}; {path}", flush=True)
    if not counts["pass"] and not counts["fail"]:
        return 5
    return 1 if counts["fail"] else 0


def files() -> list[str]:
    """Return the files of rows; the longest, which build MiniLM, have the time that is left."""
    last = ("test_servers.py", "test_minilm.py", "test_demo.py")
    names = sorted(path.name for path in FOLDER.glob("test_*.py") if path.name not in last)
    return [(FOLDER / name).relative_to(ROOT).as_posix() for name in (*names, *last)]


def run_rows(rows: Sequence[str], until: float) -> Iterator[Row]:
    """Yield each row as it ends.

    Where the process dies in a row, that row failed, and those behind it go on in another process.
    """
    done: dict[str, Row] = {}
    under_way: str | None = ""
    while under_way is not None:
        under_way, code = None, 0
        for line in _pytest(rows, until, tuple(done)):
            code = line.get("code", code)
            if "begins" in line:
                under_way = line["begins"]
            elif "row" in line and line["row"] not in done:
                under_way, done[line["row"]] = None, line
                yield line
        if under_way is not None:
            row = {"row": under_way, "outcome": "fail", "seconds": 0.0, "figures": {}}
            how = f"the process ended with code {code} in this row: {_last_words()}"
            done[under_way] = row | {"reason": how}
            yield done[under_way]
    if not done:
        print(_last_words(), file=sys.stderr)


def _last_words() -> str:
    return LOG.read_text(encoding="utf-8", errors="replace")[-2000:]


def _pytest(rows: Sequence[str], until: float, done: Sequence[str]) -> Iterator[Row]:
    """Yield the recorder's lines, and {"code": exit code} in the end."""
    LOG.parent.mkdir(parents=True, exist_ok=True)
    reading, writing = os.pipe()
    argv = (
        *(
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:schemathesis",
            "--continue-on-collection-errors",
        ),
        *("-o", "filterwarnings=", "-p", "tests.gpu.recorder", f"--rows-to={writing}"),
        *(f"--until={until}", *(f"--done={row}" for row in done), *rows),
    )
    with LOG.open("wb") as output:
        process = subprocess.Popen(
            argv,
            cwd=ROOT,
            env=row_variables(),
            stdout=output,
            stderr=output,
            pass_fds=(writing,),
        )
    os.close(writing)
    timer = threading.Timer(max(0, until - time.monotonic()) + GRACE_SECONDS, process.kill)
    timer.start()
    try:
        with os.fdopen(reading) as lines:
            yield from map(json.loads, lines)
        yield {"code": process.wait()}
    finally:
        timer.cancel()
        process.kill()
        process.wait()


def this_machine() -> GpuMachine:
    from roundhouse.dev.gpu.machine import find_machine
    from roundhouse.processes import Processes

    return find_machine(sys.executable, ROOT, row_variables(), Processes())


def row_variables() -> dict[str, str]:
    """Return the variables of rows: beside the builder's packages, those of the server."""
    from roundhouse import settings
    from roundhouse.dev.gpu.machine import python_variables
    from roundhouse.paths import Paths

    paths = Paths(code=ROOT, tree=ROOT, build=ROOT / "build")
    return python_variables(paths, settings.inherited())


def machine_facts(machine: GpuMachine) -> dict[str, Any]:
    """Return what the JSON says beside its rows."""
    from engine_build.machine import description

    host = machine.host
    assert host is not None
    now = datetime.datetime.now(datetime.UTC)
    return {
        "gpu": host.gpu,
        "compute_capability": host.compute_capability,
        "driver": host.driver,
        "machine": description(),
        "tensorrt": machine.trtexec,
        "triton": machine.triton is not None,
        "python": ".".join(map(str, sys.version_info[:3])),
        "packages": {name: version_of(name) for name in PACKAGES},
        "commit": commit(),
        "date": now.isoformat(timespec="seconds"),
    }


def commit() -> str | None:
    """Return the commit that the files are of, with -dirty where they are not; None: not known."""
    if BUNDLE.is_file():
        known: str = json.loads(BUNDLE.read_text(encoding="utf-8"))["commit"]
        return known
    git = ("git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")
    try:
        ended = subprocess.run(git, cwd=ROOT, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return ended.stdout.strip() or None


def version_of(package: str) -> str | None:
    """Return an installed package's version; None where it is not there."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def report_name(facts: Mapping[str, Any]) -> str:
    """Return the name of the JSON of this GPU and day."""
    gpu = re.sub(r"[^a-z0-9]+", "-", facts["gpu"].lower()).strip("-")
    return f"{gpu}-{facts['date'][:10]}.json"


def earlier_rows(path: Path, facts: Mapping[str, Any]) -> list[Row]:
    """Return the rows of a report of the same commit, TensorRT and driver; none of another's."""
    if not path.is_file():
        return []
    report = json.loads(path.read_text(encoding="utf-8"))
    same = all(report.get(name) == facts[name] for name in ("commit", "tensorrt", "driver"))
    rows: list[Row] = report["rows"] if same else []
    return rows


def write_report(path: Path, facts: Mapping[str, Any], rows: Sequence[Row]) -> None:
    """Write facts and rows, without places of this machine."""
    report = {
        **facts,
        "seconds": round(sum(row["seconds"] for row in rows), 1),
        "counts": count(rows),
        "rows": sorted(rows, key=lambda row: row["row"]),
    }
    text = json.dumps(report, indent=1)
    places = {f"{ROOT}": ".", f"{Path.home()}": "~", tempfile.gettempdir(): "<tmp>"}
    for place, word in places.items():
        text = text.replace(place, word) if len(place) > 1 else text
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n", encoding="utf-8")


def count(rows: Sequence[Row]) -> dict[str, int]:
    """Return how many rows passed, failed and were not run."""
    outcomes = [row["outcome"] for row in rows]
    return {outcome: outcomes.count(outcome) for outcome in ("pass", "fail", "not run")}


def format_row(row: Row) -> str:
    """Return a row as one line, with what it measured, and a failure with its reason's end."""
    figures = " ".join(
        f"{name}={text}" for name, value in row["figures"].items() if (text := _short(value))
    )
    name = row["row"].rpartition("/")[2]
    line = f"{row['outcome']:<8}{row['seconds']:>7.1f} s  {name}  {figures}".rstrip()
    reason = row.get("reason", "")
    shown = reason.splitlines()[-12:] if row["outcome"] == "fail" else reason.splitlines()[:1]
    return "\n".join([line, *(f"            {part}" for part in shown)])


def _short(value: object) -> str:
    text = f"{value:.5g}" if isinstance(value, float) else f"{value}"
    return text if len(text) <= SHOWN_FIGURE else ""


if __name__ == "__main__":
    sys.exit(main())
