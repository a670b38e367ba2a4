"""Changes of endpoints and inference components: their state, what ends them early, monitoring."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from local_cloud.account import in_background
from local_cloud.protocol.errors import AwsError
from local_cloud.sagemaker.hosting.instance import ServerError
from local_cloud.sagemaker.hosting.rollout import Rollout
from local_cloud.settings import Settings

WAIT_SECONDS = 4200.0
POLL_SECONDS = 0.05
LOOK_SECONDS = 0.2
IN_PROGRESS = ("Creating", "Updating", "SystemUpdating", "RollingBack", "Deleting")
REASON_CHARACTERS = 1024
AlarmStates = Callable[[Sequence[str]], Mapping[str, str]]
"""Returns the state of each known alarm: OK, ALARM or INSUFFICIENT_DATA."""
T = TypeVar("T")
logger = logging.getLogger("roundhouse.changes")


class RolledBack(Exception):
    """What was before answers alone; the message is the failure reason."""


class InProgress(AwsError):
    """A resource takes no change while another one is under way."""


@dataclass(kw_only=True, eq=False)
class Changing:
    """A resource whose changes take time; a final status wakes those who wait."""

    name: str
    arn: str
    status: str = "Creating"
    created: float = field(default_factory=time.time)
    modified: float = field(default_factory=time.time)
    failure_reason: str | None = None
    deployment_config: Mapping[str, Any] | None = None
    settled: threading.Event = field(default_factory=threading.Event)

    @property
    def is_in_progress(self) -> bool:
        """Whether a change is under way."""
        return self.status in IN_PROGRESS

    def require_settled(self, noun: str) -> None:
        """Refuse a change while another one is under way."""
        if self.is_in_progress:
            message = f'Cannot update in-progress {noun} "{self.arn}".'
            raise InProgress("ValidationException", message)

    def wait(self) -> None:
        """Block until no change is under way."""
        self.settled.wait(WAIT_SECONDS)

    def become(self, status: str, failure_reason: str | None = None) -> None:
        """Set the status; a final one wakes those who wait."""
        self.failure_reason = None if failure_reason is None else failure_reason[:REASON_CHARACTERS]
        if status in IN_PROGRESS:
            self.settled.clear()
        self.status, self.modified = status, time.time()
        if status not in IN_PROGRESS:
            self.settled.set()

    def begin(self, change: Callable[[], None], status_on_failure: str) -> None:
        """Run a change in the background; an error becomes the failure reason."""
        in_background(self._run, change, status_on_failure)

    def _run(self, change: Callable[[], None], status_on_failure: str) -> None:
        status, reason = "InService", None
        try:
            change()
        except (ServerError, RolledBack) as error:
            logger.warning("%s: %s", self.arn, error)
            status, reason = status_on_failure, str(error)
        except Exception as error:
            logger.exception("%s", self.arn)
            status, reason = status_on_failure, f"the local cloud failed: {error}"
        if self.status not in ("Deleting", "Deleted"):
            self.become(status, reason)


def failure_reason(error: Exception) -> str:
    """Return what a failed update says of an error."""
    is_known = isinstance(error, ServerError | RolledBack)
    return str(error) if is_known else f"the local cloud failed: {error!r}."


@dataclass(kw_only=True)
class Watch:
    """Watches an update: its alarms, its limit, and what `trouble` says of its instances."""

    plan: Rollout
    settings: Settings
    alarm_states: AlarmStates
    trouble: Callable[[], str | None]
    begun: float = field(default_factory=time.monotonic)

    def bake(self) -> None:
        """Check for the plan's wait, at least once. Raises RolledBack."""
        until = time.monotonic() + self.settings.scaled_wait(self.plan.wait_seconds)
        self.check()
        while time.monotonic() < until:
            time.sleep(POLL_SECONDS)
            self.check()

    def check(self) -> None:
        """Raise RolledBack where the update must not go on."""
        states = self.alarm_states(self.plan.alarms).items()
        tripped = ", ".join(name for name, state in states if state == "ALARM")
        limit = self.plan.limit_seconds
        if tripped:
            reason: str | None = (
                f"the following alarms of AutoRollbackConfiguration are in ALARM state: {tripped}."
            )
        elif limit is not None and time.monotonic() - self.begun > limit:
            reason = f"it took longer than MaximumExecutionTimeoutInSeconds ({limit:g})."
        else:
            reason = self.trouble()
        if reason is not None:
            raise RolledBack(f"The update was rolled back: {reason}")


class Monitor(Generic[T]):
    """Inspects what runs from a thread of its own."""

    def __init__(self, items: Callable[[], Iterable[T]], inspect: Callable[[T], None]) -> None:
        self._items, self._inspect = items, inspect
        self._ended = threading.Event()
        threading.Thread(target=self._run, name="health-monitor", daemon=True).start()

    def stop(self) -> None:
        """Stop monitoring; replacements under way go on."""
        self._ended.set()

    def _run(self) -> None:
        while not self._ended.wait(LOOK_SECONDS):
            for item in self._items():
                try:
                    self._inspect(item)
                except Exception:
                    logger.exception("monitoring failed")
