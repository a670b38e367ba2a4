"""A crowd of callers that send one server the same request all the time, and a watcher of health.

A healthy server answers the next request.
"""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.contract.faulty_server import Answer, Caller, FaultyServer, Gone, same

TEXTS = ("the cat sat on the mat", "a dog")
OK, UNAVAILABLE, GONE, TURNED = "right", "503", "connection ended", "healthy, and then 503"


@dataclass
class Outcomes:
    """What one caller got, and the answers that none should get."""

    met: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


class Crowd:
    """Callers in threads, each with a connection that it opens again when it ends."""

    def __init__(
        self, server: FaultyServer, right: Sequence[Sequence[float]], *, size: int
    ) -> None:
        self.server, self._right = server, right
        self.outcomes = [Outcomes() for _ in range(size)]
        self.health = Outcomes()
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._call, args=(outcomes,)) for outcomes in self.outcomes
        ]
        self._threads.append(threading.Thread(target=self._watch))

    def __enter__(self) -> Crowd:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def count(self, outcome: str) -> int:
        """How often the callers got an outcome."""
        return sum(outcomes.met[outcome] for outcomes in self.outcomes)

    def all_met(self, outcome: str) -> bool:
        return all(outcomes.met[outcome] for outcomes in self.outcomes)

    def wrong(self) -> list[str]:
        return [fault for outcomes in (*self.outcomes, self.health) for fault in outcomes.wrong]

    def _call(self, outcomes: Outcomes) -> None:
        while not self._stop.is_set():
            try:
                with contextlib.closing(Caller(self.server.port)) as caller:
                    while not self._stop.is_set():
                        self._count(caller.ask(*TEXTS), outcomes)
            except Gone:
                outcomes.met[GONE] += 1
                self._stop.wait(0.01)

    def _count(self, answer: Answer, outcomes: Outcomes) -> None:
        if answer.status == 200 and same(answer.vectors, self._right):
            outcomes.met[OK] += 1
        elif answer.status == 503 and answer.sentence and int(answer.headers["retry-after"]) > 0:
            outcomes.met[UNAVAILABLE] += 1
        else:
            outcomes.wrong.append(f"{answer.status} {answer.body[:300]!r}")

    def _watch(self) -> None:
        """A healthy server answers the next request on every connection.

        Unless the connection ends, or it is killed now.
        """
        while not self._stop.wait(0.005):
            with contextlib.suppress(*Gone), contextlib.ExitStack() as leaving:
                callers = [
                    leaving.enter_context(contextlib.closing(Caller(self.server.port)))
                    for _ in range(2)
                ]
                status = callers[0].request("GET", "/ping").status
                self.health.met[str(status)] += 1
                if status == 200:
                    self._check_health([caller.ask(*TEXTS) for caller in callers[::-1]])

    def _check_health(self, answers: Sequence[Answer]) -> None:
        if any(answer.status == 503 for answer in answers):
            self.health.met[TURNED] += 1
        for answer in answers:
            if answer.status != 503 and (
                answer.status != 200 or not same(answer.vectors, self._right)
            ):
                self.health.wrong.append(f"healthy, and then {answer.status} {answer.body[:300]!r}")
