"""The failure log's lines, with a clock and a writer of the tests' own."""

from __future__ import annotations

import json
import threading

from container.server.telemetry.failure_log import BACKLOG_LINES, LINES_PER_SECOND, FailureLog

SECRET = "a client's text"


class Written:
    """A log and what it has written."""

    def __init__(self) -> None:
        self.now = 100.0
        self.raw: list[bytes] = []
        self.log = FailureLog(self.raw.append, model="m", clock=lambda: self.now)

    def lines(self) -> list[dict]:
        self.log.close()
        assert all(line.endswith(b"\n") and line.count(b"\n") == 1 for line in self.raw)
        return [json.loads(line) for line in self.raw]


def with_traceback(fault: Exception) -> Exception:
    try:
        raise fault
    except Exception as caught:
        return caught


def test_line_has_what_failed_and_where():
    fault, written = with_traceback(RuntimeError("CUDA error")), Written()
    written.log.report("engine_failed", fault, stage="engine", status=503, rows=4)
    (line,) = written.lines()
    assert line.pop("time").endswith("Z")
    assert line == {
        "level": "error",
        "model": "m",
        "event": "engine_failed",
        "status": 503,
        "stage": "engine",
        "exception": "RuntimeError",
        "message": "CUDA error",
        "rows": 4,
    }


def test_our_own_bug_has_its_frames_and_no_values():
    written = Written()
    written.log.report("request_failed", with_traceback(KeyError(SECRET)), stage="http")
    (line,) = written.lines()
    assert "test_failure_log.py" in line["traceback"][0]
    assert line["traceback"][0].endswith(" with_traceback")
    assert SECRET not in json.dumps(line) and "message" not in line


def test_each_event_has_so_many_lines_a_second_and_the_next_counts_the_rest():
    written = Written()
    for seconds, count in ((0, LINES_PER_SECOND + 5), (1, 2)):
        written.now += seconds
        for _ in range(count):
            written.log.report("one", stage="http")
    written.log.report("other", stage="http")
    lines = written.lines()
    assert [line["event"] for line in lines] == ["one"] * (LINES_PER_SECOND + 2) + ["other"]
    assert [line.get("suppressed") for line in lines[-4:]] == [None, 5, None, None]


def test_reporting_never_waits_for_a_reader_that_is_stuck():
    go_on, begun, lines = threading.Event(), threading.Event(), []

    def write(line: bytes) -> None:
        begun.set()
        go_on.wait(20)
        lines.append(line)

    log = FailureLog(write)
    log.report("first", stage="http")
    begun.wait(20)
    for number in range(BACKLOG_LINES + 50):
        log.report(f"event {number}", stage="http")
    go_on.set()
    log.close()
    assert len(lines) == BACKLOG_LINES + 1
