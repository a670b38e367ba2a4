"""What one load test is asked to do, whole."""

from __future__ import annotations

from dataclasses import dataclass

from roundhouse.load_test.requests.destination import Body, Destination
from roundhouse.load_test.requests.inputs import Inputs
from roundhouse.load_test.traffic import Arrivals, LatencyStop, Phase


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A load test.

    `phases` is empty where the saturation point is searched for, from `first_rate` on when it is
    given.
    """

    subject: str
    """What is loaded, in words: an endpoint with its model, or a URL."""
    destination: Destination
    inputs: Inputs
    slo_ms: float | None
    phases: tuple[Phase, ...] = ()
    first_rate: float | None = None
    step_seconds: float = 10.0
    warm_up_seconds: float = 3.0
    stop: LatencyStop | None = None
    most_requests: int | None = None
    arrivals: Arrivals = Arrivals.poisson
    seed: int = 1
    workers: int | None = None
    """None: as many load processes as the rate needs."""
    most_workers: int = 1
    most_connections: int = 512
    timeout_seconds: float = 60.0
    expected_interval_ms: float | None = None
    command: str = ""

    @property
    def bodies(self) -> tuple[Body, ...]:
        """The requests' bodies."""
        return self.inputs.bodies
