"""One batch: rows out of the queue, and the way of their answers home."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from container.server.batching.job import Job, signature
from container.server.batching.shelf import Place
from container.server.types import Arrays


class Batch:
    """Rows that run together; each request's lie side by side, in order."""

    __slots__ = ("_parts", "_places", "padded_tokens", "queue_seconds", "rows", "tokens")

    def __init__(self, places: Sequence[Place], *, longest: int, now: float) -> None:
        """`places` by number; `longest`: what rows are padded to; `now`: the time at which they
        leave the queue.
        """
        self._places = places
        self.rows: list[Any] = [job.rows[number - job.base] for _, number, job in places]
        self.tokens = sum(map(len, self.rows))
        self.padded_tokens = max(1, longest) * len(places)
        self._parts = _parts(places)
        self.queue_seconds = now - self._parts[0][0].submitted_at
        for job, start, stop in self._parts:
            job.queued -= stop - start
            job.left_at = now

    def is_over(self) -> bool:
        """True when nobody waits for any of its answers."""
        return all(job.done() for job, _, _ in self._parts)

    def deliver(self, answers: Arrays) -> None:
        """Hands every request its rows' answers: a view of them where the whole request is here."""
        like = signature(answers)
        for job, start, stop in self._parts:
            if not job.done():
                own = tuple([answer[start:stop] for answer in answers])
                if stop - start == job.size:
                    job.finish(own)
                else:
                    job.put([place[1] - job.base for place in self._places[start:stop]], own, like)

    def alone(self) -> list[Alone]:
        """The batch request by request."""
        return [
            Alone(job, self._places[start:stop], self.rows[start:stop])
            for job, start, stop in self._parts
        ]


class Alone:
    """The rows of one request out of a batch that failed."""

    __slots__ = ("_places", "job", "rows")

    def __init__(self, job: Job, places: Sequence[Place], rows: Sequence[Any]) -> None:
        self.job = job
        self._places = places
        self.rows = rows

    def deliver(self, answers: Arrays) -> None:
        """Hands the request these rows' answers, unless it is over."""
        if self.job.done():
            return
        if len(self._places) == self.job.size:
            self.job.finish(answers)
        else:
            self.job.put(
                [place[1] - self.job.base for place in self._places], answers, signature(answers)
            )


def _parts(places: Sequence[Place]) -> list[tuple[Job, int, int]]:
    """Each request with the first and the end of its rows."""
    parts: list[tuple[Job, int, int]] = []
    start, job = 0, places[0][2]
    for position, place in enumerate(places):
        if place[2] is not job:
            parts.append((job, start, position))
            start, job = position, place[2]
    parts.append((job, start, len(places)))
    return parts
