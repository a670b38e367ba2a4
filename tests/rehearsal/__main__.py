"""`make rehearsal`: plays the workflows once and writes build/rehearsal/report.json."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path

from tests.rehearsal.scenario import ROOT, Rehearsal

BARS = {"seconds": 360, "rollback_seconds": 60}
"""The longest that a rehearsal may take on an idle machine."""


def rehearse(folder, report):
    """Play the rehearsal in a folder and write its report; raises AssertionError for a miss."""
    rehearsal = Rehearsal(folder, say=lambda text: print(text, flush=True))
    try:
        rehearsal.play()
        document = rehearsal.report()
    finally:
        rehearsal.stop()
    report.parent.mkdir(parents=True, exist_ok=True)
    report.write_text(json.dumps(document, indent=1) + "\n")
    return document


def main():
    """Exit code 1 for a miss; what was played is then in the folder that is named."""
    folder, report = Path(tempfile.mkdtemp(prefix="rehearsal-")), ROOT / "build" / "rehearsal"
    try:
        document = rehearse(folder, report / "report.json")
    except AssertionError as error:
        print(f"✗ {error}\nRuns and their logs: {folder / 'runs'}", file=sys.stderr)
        return 1
    shutil.rmtree(folder)
    requests = document["requests_of_prod"]
    print(
        f"Done in {document['seconds']} s: rollback {document['rollback_seconds']} s after the "
        f"merge; {requests['answered']} requests of prod answered, {requests['failed']} failed."
    )
    missed = [name for name, seconds in BARS.items() if document[name] > seconds]
    for name in missed:
        print(f"✗ {name}: {document[name]}, and the bar is {BARS[name]}", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
