"""The options of `roundhouse bench` for a text generator, and the phases that they describe."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roundhouse.errors import UsageError
from roundhouse.load_test.options import (
    DEFAULT_SECONDS,
    MAX_RATE,
    Arrivals,
    LoadOptions,
    Loop,
    Phase,
    closed_phase,
)

STREAM_SECONDS = 480.0
"""After which a stream is given up, unless --timeout says another time."""
LONGEST_PHASE_SECONDS = 3600.0
"""Of a phase that ends after a number of requests."""
ENGINE_OPTIONS = {
    "closed_loop": False, "users": None, "spawn": None, "phase": (), "slo": None, "stop": None,
    "max_requests": None, "first_rate": None, "texts_per_request": 1, "binary": None,
    "expected_interval": None,
}  # fmt: skip
"""Options of engines that a text generator has not, with what they are when not given."""


@dataclass(frozen=True, kw_only=True)
class GenerationOptions:
    """Options of one load test of a text generator; None means not given."""

    endpoint: str | None = None
    env: str | None = None
    model: str | None = None
    url: str | None = None
    openai: bool = False
    """True: the OpenAI path of the endpoint with a bearer token."""
    concurrency: tuple[int, ...] = ()
    """Requests at once, a phase for each."""
    rate: float | None = None
    requests: int | None = None
    """Of each phase; None: as many as its seconds take."""
    seconds: float | None = None
    step_seconds: float = 20.0
    warm_up: float = 3.0
    lengths: str | None = None
    input: Path | None = None
    ttft: float | None = None
    itl: float | None = None
    """Milliseconds."""
    arrivals: Arrivals = Arrivals.poisson
    connections: int = 4096
    timeout: float = STREAM_SECONDS
    seed: int = 1
    output: Path | None = None
    record: bool = False
    command: str = ""

    @property
    def is_search(self) -> bool:
        """Whether the knee is searched for: no load is given."""
        return self.rate is None and not self.concurrency

    def require_consistent(self) -> None:
        """Raise UsageError for options that exclude each other."""
        for conflict in self._conflicts():
            raise UsageError(f"{conflict}.")

    def _conflicts(self) -> Iterator[str]:
        if (self.endpoint is None) == (self.url is None):
            yield "ENDPOINT or --url: give one of them"
        if self.endpoint is not None and self.env is None:
            yield "--env: is missing; an endpoint belongs to an environment"
        if self.url is not None and (self.env is not None or self.openai):
            yield "--env and --openai: belong to an ENDPOINT; a server by its URL has none"
        if self.rate is not None and self.concurrency:
            yield "--rate and --concurrency: a load is open or closed; give one of them"
        if self.rate is not None and not 0 < self.rate <= MAX_RATE:
            yield f"--rate {self.rate:g}: give a number above 0, at most {MAX_RATE:,.0f}"
        if self.is_search and (self.seconds, self.requests) != (None, None):
            owners = "--rate or --concurrency; the search has --step-seconds"
            yield f"--seconds and --requests: belong to {owners}"
        if self.input is not None and self.lengths is not None:
            yield "--input and --lengths: prompts come from a file, or have lengths; give one"
        if self.record and (self.endpoint is None or not self.is_search):
            yield "--record: takes an ENDPOINT and no load; it searches for the knee itself"

    def phases(self) -> tuple[Phase, ...]:
        """Return the phases; none for a search."""
        seconds = DEFAULT_SECONDS if self.seconds is None else self.seconds
        if self.requests is not None and self.seconds is None:
            seconds = LONGEST_PHASE_SECONDS
        if self.rate is not None:
            return (
                Phase(
                    name=f"{self.rate:g} requests/s",
                    loop=Loop.open,
                    start=self.rate,
                    seconds=seconds,
                    requests=self.requests,
                ),
            )
        return tuple(
            closed_phase(at_once(count), count, seconds, self.requests)
            for count in self.concurrency
        )

    def driver_options(self) -> LoadOptions:
        """Return what the driver of requests needs."""
        return LoadOptions(
            arrivals=self.arrivals,
            connections=self.connections,
            timeout=self.timeout,
            seed=self.seed,
        )


def generation_options(given: Mapping[str, Any]) -> GenerationOptions:
    """Return the options of a command line, by the names of its parameters.

    Raises UsageError for those that only engines have.
    """
    values = dict(given)
    for name, default in ENGINE_OPTIONS.items():
        if values.pop(name, default) != default:
            flag = name.replace("_", "-")
            raise UsageError(
                f"--{flag}: belongs to engines; a text generator has --concurrency, --rate, "
                "--requests, --lengths, --ttft and --itl."
            )
    if "concurrency" in values:
        values["concurrency"] = parse_concurrency(values["concurrency"])
    return GenerationOptions(**values)


def at_once(count: int) -> str:
    """Return the name of a phase with so many requests at once."""
    return f"{count} at once"


def parse_concurrency(text: str) -> tuple[int, ...]:
    """Return the numbers of `1,4,16`. Raises UsageError."""
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() and 0 < int(word) <= MAX_RATE for word in words):
        raise UsageError(
            f"--concurrency {text}: give whole numbers from 1 on, with commas, such as 1,4,16."
        )
    return tuple(map(int, words))
