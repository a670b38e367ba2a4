"""One comparison in a process of its own, whose loads are a few requests each.

`python compared.py AXES`, in the folder of a repository's copy with a tiny session's tree;
AXES is JSON. Every load is a line of the file `loads`; the one whose number stands in the file
`stop` waits until the process ends.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path

from roundhouse import interruption, invocation
from roundhouse.cli.compare import show
from roundhouse.cli.options import Format
from roundhouse.measure.compare.cells import cells
from roundhouse.measure.compare.cost import report_of
from roundhouse.measure.compare.result import Knee
from roundhouse.measure.compare.run import CompareOptions, open_run, run_comparison
from roundhouse.measure.compare.tree import subject
from roundhouse.paths import find_paths
from roundhouse.report import open_report
from roundhouse.session import LOCAL, Session, open_session, valid_tree
from tests.local_cloud.synthesis import run_synthesis_here

MODEL, SLO_MS, REQUESTS = "tiny", 1000.0, 5


def measure(session: Session, model: str, options: CompareOptions) -> Knee:
    """Return the knee of a server that answers one user alone: what that user got."""
    place = session.paths.build.parent
    with (place / "loads").open("a") as loads:
        loads.write(f"{model}\n")
    count = len((place / "loads").read_text().splitlines())
    if (place / "stop").exists() and count == int((place / "stop").read_text()):
        threading.Event().wait()
    address = invocation.Address(endpoint=f"{LOCAL}-{model}", target_model=None)
    took = []
    for _ in range(REQUESTS):
        begin = time.perf_counter()
        invocation.invoke_texts(session.clients("sagemaker-runtime"), address, ["a red train"])
        took.append(1000 * (time.perf_counter() - begin))
    took.sort()
    return Knee(
        rate=1000 * REQUESTS / sum(took), reason="one user alone", p50_ms=took[REQUESTS // 2],
        p95_ms=None, p99_ms=None,
    )  # fmt: skip


def main(axes: str) -> int:
    """Compare cells of the tiny model."""
    paths = find_paths(Path.cwd())
    model = subject(valid_tree(paths), LOCAL, MODEL)
    run = open_run(paths, open_report(), model, CompareOptions(slo_ms=SLO_MS), measure=measure)
    run.session = open_session(paths, run.report, LOCAL, run_synthesis_here)
    done = run_comparison(run, cells(json.loads(axes)))
    print("results:", json.dumps({row.name: [row.state, row.reason] for row in done}))
    show(paths, run.report, report_of(run, done, 10.0, "compared.py"), Format.text)
    return 0


if __name__ == "__main__":
    interruption.install()
    try:
        sys.exit(main(*sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
