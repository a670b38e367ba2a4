"""What one load process measures, gathered second by second."""

from __future__ import annotations

import time
from collections import Counter

from roundhouse.load_test.driving.orders import Second
from roundhouse.load_test.latencies import Latencies

MOST_FAULTS = 20
OTHERS = "other faults"


class Tally:
    """Counts and durations since the last second was closed; times are those of the monotonic
    clock, in seconds.
    """

    def __init__(self, number: int, worker: int, expected_interval_seconds: float | None) -> None:
        self._number, self._worker = number, worker
        self._interval = expected_interval_seconds
        self._latency, self._service, self._lag, self._corrected = (
            Latencies(),
            Latencies(),
            Latencies(),
            Latencies(),
        )
        self._faults: Counter[str] = Counter()
        self._known: set[str] = set()
        self._clock, self._cpu = time.monotonic(), time.process_time()
        self.intended = self.sent = self.answered = self.reconnected = 0

    def late(self, seconds: float) -> None:
        """How much later than intended this process came to sending a request."""
        self.intended += 1
        self._lag.record(seconds)

    def answer(self, intended: float, sent: float, now: float) -> None:
        """An answer with status 200."""
        self.answered += 1
        self._record(intended, sent, now)

    def fault(self, reason: str) -> None:
        """A refusal, or a broken connection."""
        if reason not in self._known and len(self._known) >= MOST_FAULTS:
            reason = OTHERS
        self._known.add(reason)
        self._faults[reason] += 1

    def unanswered(self, reason: str, intended: float, sent: float | None, now: float) -> None:
        """A request that was given up; the time it had waited counts, as leaving out the slowest
        would flatter.
        """
        self.fault(reason)
        self._record(intended, intended if sent is None else sent, now)

    def closed_second(self, second: int, *, users: int, in_flight: int, waiting: int) -> Second:
        """What was measured since the last call; begins anew."""
        now, cpu = time.monotonic(), time.process_time()
        result = Second(
            number=self._number,
            second=second,
            worker=self._worker,
            users=users,
            intended=self.intended,
            sent=self.sent,
            answered=self.answered,
            faults=dict(self._faults),
            in_flight=in_flight,
            waiting=waiting,
            reconnected=self.reconnected,
            cpu_share=(cpu - self._cpu) / max(now - self._clock, 1e-6),
            latency=_taken(self._latency),
            service=_taken(self._service),
            lag=_taken(self._lag),
            corrected=_taken(self._corrected),
        )
        self._clock, self._cpu = now, cpu
        self._faults.clear()
        self.intended = self.sent = self.answered = self.reconnected = 0
        return result

    def _record(self, intended: float, sent: float, now: float) -> None:
        self._latency.record(now - intended)
        self._service.record(now - sent)
        if self._interval is not None:
            self._corrected.record_corrected(now - sent, self._interval)


def _taken(latencies: Latencies) -> bytes:
    if not len(latencies):
        return b""
    data = latencies.encoded()
    latencies.clear()
    return data
