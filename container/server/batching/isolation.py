"""What follows when the engine fails on a batch: each of its requests alone, and then, if none
succeeds, the probe.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from container.server.batching.batch import Alone, Batch
from container.server.batching.job import Job
from container.server.batching.slots import Landed, Outcome

Blamed = tuple[Job, Exception]
"""A request that failed alone, and how."""


class Isolation:
    """Finds out who is to blame; while it lasts, it has the slot on which the batch failed."""

    def __init__(
        self,
        batch: Batch,
        fault: Exception,
        *,
        run: Callable[[Sequence[Any], Landed, Callable[[], bool]], None],
        probe: Sequence[Any],
        failed: Callable[[Exception, int], None],
        over: Callable[[Sequence[Blamed], Exception | None], None],
    ) -> None:
        """`fault` is the batch's; `failed` is called for every failure on the way, with its rows.

        `over` is called once, at the end, with the requests that failed alone, and the probe's
        fault, if it failed too.
        """
        alone = batch.alone()
        self._run, self._probe, self._failed, self._over = run, probe, failed, over
        self._to_run = alone[::-1] if len(alone) > 1 else []
        self._blamed: list[Blamed] = (
            [(part.job, fault) for part in alone] if len(alone) == 1 else []
        )
        self._answered = False

    def proceed(self) -> None:
        """Runs the next request alone, the probe, or ends."""
        while self._to_run:
            part = self._to_run.pop()
            if not part.job.done():
                self._run(part.rows, partial(self._ran, part), part.job.done)
                return
        if self._blamed and not self._answered:
            self._run(self._probe, self._probed, bool)
        else:
            self._over(self._blamed, None)

    def _ran(self, part: Alone, outcome: Outcome, _: float) -> None:
        if isinstance(outcome, Exception):
            self._blamed.append((part.job, outcome))
            self._failed(outcome, len(part.rows))
        elif outcome is not None:
            self._answered = True
            part.deliver(outcome)
        self.proceed()

    def _probed(self, outcome: Outcome, _: float) -> None:
        fault = outcome if isinstance(outcome, Exception) else None
        if fault is not None:
            self._failed(fault, len(self._probe))
        self._over(self._blamed, fault)
