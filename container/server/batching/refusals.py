"""Why requests get no answer, in the sentences that clients read."""

from __future__ import annotations

from container.server.batching.observer import Drop
from container.server.engines.engine import EngineOutOfMemory
from container.server.types import (
    DeadlinePassed,
    EngineRefused,
    MemoryShort,
    OutOfMemory,
    QueueFull,
    RequestFault,
    TooLarge,
    Unavailable,
)

BROKEN = "The engine fails on every request; this server waits to be replaced."
CLOSED = "This server is stopping; try again in a second."
LATE = "The request's time was over before it could wait for the engine; try again in a second."
REFUSED = "The engine cannot run this request; others are not affected."
SHORT = "Memory is too short for this request beside what is loaded and runs now; try again in a second, or send fewer rows."


def obstacle(
    rows: int, *, waiting: int, most: int, broken: bool, closed: bool
) -> tuple[Drop, RequestFault]:
    """What keeps a request of so many rows out of a queue where `waiting` of at most `most` rows
    wait; at last its deadline.
    """
    if broken:
        return "broken", Unavailable(BROKEN)
    if closed:
        return "closing", Unavailable(CLOSED)
    if rows > most:
        return "too_large", TooLarge(
            f"The request has {rows} rows and at most {most} may wait; send it in parts."
        )
    if waiting + rows > most:
        full = f"{waiting} rows wait already, this request has {rows}, and at most {most} may wait; try again in a second."
        return "queue_full", QueueFull(full)
    return "deadline", DeadlinePassed(LATE)


def refusal(
    fault: Exception, *, broken: bool, shortage: type[MemoryShort | OutOfMemory]
) -> tuple[Drop, RequestFault]:
    """What a request hears that the engine fails on, alone or, where it is broken, like on all
    others.
    """
    if broken:
        return "broken", Unavailable(BROKEN)
    if is_shortage(fault):
        return "memory", shortage(SHORT)
    return "refused", EngineRefused(REFUSED)


def is_shortage(fault: Exception) -> bool:
    """Whether an engine failed for lack of memory."""
    return isinstance(fault, EngineOutOfMemory | MemoryError)


def hung(seconds: float) -> TimeoutError:
    """What the log hears of an engine that does not come back."""
    return TimeoutError(
        f"The engine has run one batch for more than {seconds:g} s and hangs; this server waits to be replaced."
    )
