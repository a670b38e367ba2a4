"""When HTTP workers that ended are restarted, and when the supervisor gives up."""

from __future__ import annotations

from collections import deque

WINDOW_SECONDS = 60.0
MOST = 10
"""Workers that may end within the window, all together, before the supervisor gives up."""
FIRST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 5.0


class RestartPolicy:
    """Delays and limits restarts by the ends of the last minute."""

    def __init__(self) -> None:
        self._times: deque[tuple[float, int]] = deque()

    @property
    def is_exhausted(self) -> bool:
        """True when more processes ended within the window than are restarted."""
        return len(self._times) > MOST

    def restart_delay_seconds(self, now: float, worker: int) -> float:
        """Count a worker's end; return its restart's delay, doubled for each in the window."""
        self._times.append((now, worker))
        while self._times[0][0] < now - WINDOW_SECONDS:
            self._times.popleft()
        earlier = sum(1 for _, other in self._times if other == worker) - 1
        return min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2.0**earlier)
