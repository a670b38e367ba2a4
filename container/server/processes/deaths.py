"""When HTTP processes that end unasked are replaced, and when that is given up. Pure."""

from __future__ import annotations

from collections import deque

WINDOW_SECONDS = 60.0
MOST = 10
"""Deaths within the window, of all processes together; with more the owner gives up."""
FIRST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 5.0


class Deaths:
    """The deaths of the last minute."""

    def __init__(self) -> None:
        self._times: deque[tuple[float, int]] = deque()

    @property
    def too_many(self) -> bool:
        """Whether replacing has become pointless."""
        return len(self._times) > MOST

    def pause_seconds(self, now: float, place: int) -> float:
        """Counts a death at a place, and says how long its successor waits: twice as long after
        each in the window.
        """
        self._times.append((now, place))
        while self._times[0][0] < now - WINDOW_SECONDS:
            self._times.popleft()
        earlier = sum(1 for _, other in self._times if other == place) - 1
        return min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2.0**earlier)
