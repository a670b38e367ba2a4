"""`python -m benchmarks.compared_cells TREE BUILD AXES SEED [KILL_AFTER]`: MiniLM compared.

AXES is JSON. With KILL_AFTER this process is killed where it would load a cell after so many, as a
lost machine ends it. The last line is JSON: {rates, accuracies, reasons, loads, controls}.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

from benchmarks.trees import MODEL
from roundhouse.compare.cells import cells
from roundhouse.compare.comparison import Comparison, measure_knee, open_run, run_comparison
from roundhouse.compare.result import State
from roundhouse.compare.run import CompareOptions
from roundhouse.compare.tree import require_slo, subject
from roundhouse.load_test.knee import Knee
from roundhouse.paths import Paths, find_paths
from roundhouse.report import open_report
from roundhouse.session import LOCAL, Session, valid_tree


def main(tree: str, build: str, axes: str, seed: str, kill_after: str = "0") -> int:
    """Compare the cells; what an earlier process measured is kept, except by another seed."""
    code = find_paths(Path(__file__).parent).code
    paths = Paths(code=code, tree=Path(tree), build=Path(build))
    model = subject(valid_tree(paths), LOCAL, MODEL)
    loads: list[str] = []

    def measure(session: Session, name: str, options: CompareOptions) -> Knee:
        if kill_after != "0" and len(loads) == int(kill_after):
            os.kill(os.getpid(), signal.SIGKILL)
        loads.append(name)
        return measure_knee(session, name, options)

    options = CompareOptions(slo_ms=require_slo(model, None), seed=int(seed))
    run = open_run(paths, open_report(), model, options, measure=measure)
    done = run_comparison(run, cells(json.loads(axes), model.candidate))
    print(json.dumps(document(done, loads)))
    return 0


def document(done: Comparison, loads: list[str]) -> dict[str, object]:
    """Return what the benchmark reads, of the cells that `check` takes."""
    rows = [row for row in done.results if row.state is not State.refused]
    return {
        "rates": {row.name: row.rate for row in rows},
        "p99_ms": {row.name: row.knee.p99_ms for row in rows if row.knee is not None},
        "accuracies": {row.name: row.accuracy_mean for row in rows},
        "reasons": {row.name: row.reason for row in done.results},
        "loads": loads,
        "controls": [[control.name, control.first, control.second] for control in done.controls],
    }


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
