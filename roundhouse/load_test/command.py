"""`roundhouse bench` as the command line knows it: loads, records where that was asked for, prints
what came of it.
"""

from __future__ import annotations

import json

from roundhouse.load_test.benching import bench
from roundhouse.load_test.recording.recording import Recorded, record
from roundhouse.load_test.report.table import load_table
from roundhouse.load_test.wishes import Wishes, require_sound
from roundhouse.paths import Paths
from roundhouse.report import Report
from roundhouse.session import open_session

BROKEN_OFF = 130


def load(at: Paths, report: Report, wishes: Wishes, form: str) -> int:
    """The exit code: 0, or 130 when the load was broken off. Raises RoundhouseError and its kin."""
    require_sound(wishes)
    recorded = _recorded(at, report, wishes)
    done = bench(at, report, wishes) if recorded is None else recorded.benched
    if form == "json":
        said = (
            {}
            if recorded is None
            else {"recorded": recorded.capacity.model_dump(mode="json"), "lock": str(recorded.lock)}
        )
        document = {
            **done.result.as_dict(),
            "files": {"html": str(done.page), "json": str(done.data)},
            **said,
        }
        print(json.dumps(document, indent=2, ensure_ascii=False))
    else:
        report.console.print(load_table(done.result))
        report.print(done.result.headline)
        report.print(f"The report: {done.page}; its numbers: {done.data}.")
        if recorded is not None:
            report.print(f"{recorded.told} Written to {recorded.lock}: review and commit it.")
    return BROKEN_OFF if done.result.broken_off else 0


def _recorded(at: Paths, report: Report, wishes: Wishes) -> Recorded | None:
    if not wishes.record:
        return None
    assert wishes.environment is not None
    return record(open_session(at, report, wishes.environment), wishes)
