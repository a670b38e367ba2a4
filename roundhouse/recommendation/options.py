"""Options of a recommendation job, parsed and checked against AWS's documented bounds. Pure."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

from onboarding.aws_limits import (
    PARAMETER_COUNT,
    PARAMETER_NAME_LENGTH,
    PARAMETER_VALUE_LENGTH,
    PARAMETER_VALUES,
    PHASE_SECONDS,
    PHASE_SPAWN_RATE,
    PHASE_USERS,
    RECOMMENDATION_CONFIGURATIONS,
    RECOMMENDATION_SECONDS,
    USERS_BETWEEN_PHASES,
    Bounds,
)
from roundhouse.errors import UsageError
from roundhouse.load_test.options import parse_latency_stop

JobType = Literal["Default", "Advanced"]
START_UP_SECONDS = 600
"""What the start of a benchmark's endpoint is given in the job's time; AWS says no number."""
DEFAULT_JOB_SECONDS = 2700
"""A Default job's 45 minutes. Source: SageMaker developer guide, "Inference Recommender"."""
LOAD_TEST_PERCENTILE = 95.0


@dataclass(frozen=True, kw_only=True)
class UserPhase:
    """Users at its start, how many more each minute, and its length."""

    start: int
    spawn: int
    seconds: int

    @property
    def last(self) -> int:
        """Users at its end."""
        return self.start + self.spawn * self.seconds // 60


@dataclass(frozen=True, kw_only=True)
class Stairs:
    """As many users more at each step; `seconds` is the length of all steps together."""

    users: int
    steps: int
    seconds: int


DEFAULT_PHASES = (UserPhase(start=2, spawn=2, seconds=1500),)


@dataclass(frozen=True, kw_only=True)
class RecommendOptions:
    """A job as the user wants it; None: the default.

    `latency_ms` bounds the percentile p95, the only one of custom load tests. `parameters`:
    values by environment variable. `rows`: of a request.
    """

    job_type: JobType = "Default"
    instance_types: tuple[str, ...] = ()
    phases: tuple[UserPhase, ...] = ()
    stairs: Stairs | None = None
    max_invocations: int | None = None
    latency_ms: int | None = None
    stops_when_flat: bool = True
    max_tests: int | None = None
    parallel: int = 1
    parameters: Mapping[str, tuple[str, ...]] | None = None
    job_seconds: int | None = None
    rows: int = 1

    @property
    def traffic_seconds(self) -> int:
        """Length of one benchmark's load."""
        if self.stairs is not None:
            return self.stairs.seconds
        return sum(phase.seconds for phase in self.phases or DEFAULT_PHASES)

    def combinations(self) -> list[dict[str, str]]:
        """Return the values of environment variables that are tried, each with each."""
        given = self.parameters or {}
        return [
            dict(zip(given, values, strict=True)) for values in itertools.product(*given.values())
        ]

    def tests(self, instance_types: Sequence[str]) -> int:
        """Return how many benchmarks the job has."""
        return len(instance_types) * len(self.combinations())

    def duration_seconds(self, instance_types: Sequence[str]) -> int:
        """Return the most seconds that the job may take."""
        if self.job_seconds is not None:
            return self.job_seconds
        if self.job_type == "Default":
            return DEFAULT_JOB_SECONDS
        rounds = math.ceil(self.tests(instance_types) / self.parallel)
        return rounds * (self.traffic_seconds + START_UP_SECONDS)


def parse_user_phase(text: str) -> UserPhase:
    """Return the phase of `start=2,spawn=2,seconds=1500`. Raises UsageError."""
    values = _numbers(text, "--phase", ("start", "spawn", "seconds"), optional=("spawn",))
    return UserPhase(start=values["start"], spawn=values.get("spawn", 0), seconds=values["seconds"])


def parse_stairs(text: str) -> Stairs:
    """Return the stairs of `users=2,steps=5,seconds=600`. Raises UsageError."""
    values = _numbers(text, "--stairs", ("users", "steps", "seconds"))
    return Stairs(users=values["users"], steps=values["steps"], seconds=values["seconds"])


def _numbers(
    text: str, flag: str, names: Sequence[str], optional: Sequence[str] = ()
) -> dict[str, int]:
    pairs = [part.partition("=") for part in text.split(",")]
    values = {
        name.strip(): int(value)
        for name, _, value in pairs
        if re.fullmatch(r"[0-9]{1,9}", value.strip())
    }
    needed = set(names) - set(optional)
    if len(values) != len(pairs) or not needed <= set(values) <= set(names):
        example = ",".join(f"{name}=NUMBER" for name in names)
        left_out = f"; {', '.join(optional)} may be left out" if optional else ""
        raise UsageError(f"{flag} {text!r}: write {example}, whole numbers{left_out}.")
    return values


def parse_parameters(texts: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return values by variable of `NAME=a,b`, one text a variable. Raises UsageError."""
    found: dict[str, tuple[str, ...]] = {}
    for text in texts:
        name, _, values = text.partition("=")
        listed = tuple(value.strip() for value in values.split(",") if value.strip())
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name.strip()) or not listed:
            raise UsageError(
                f"--variable {text!r}: write a variable and its values, such as "
                "ROUNDHOUSE_THREADS=1,2."
            )
        if name.strip() in found:
            raise UsageError(
                f"--variable {name.strip()}: is given twice; list its values with commas."
            )
        found[name.strip()] = tuple(dict.fromkeys(listed))
    return found


def parse_stop(text: str) -> int:
    """Return the milliseconds of `p95=500`. Raises RoundhouseError."""
    stop = parse_latency_stop(text)
    if stop.percentile != LOAD_TEST_PERCENTILE:
        raise UsageError(
            f"--stop-at {text!r}: a load test takes the percentile p95 alone, says AWS's "
            "ModelLatencyThreshold; write p95=MILLISECONDS."
        )
    return math.ceil(stop.milliseconds)


def require_bounds(options: RecommendOptions, instance_types: Sequence[str]) -> None:
    """Raise UsageError with every fault of a job for these instance types, a line each."""
    faults = [
        *(_default_faults(options) if options.job_type == "Default" else _load_faults(options)),
        *_parameter_faults(options),
        *_count_faults(options, instance_types),
    ]
    if faults:
        raise UsageError("\n".join(faults))


def _default_faults(options: RecommendOptions) -> Iterator[str]:
    """A Default job chooses its own load."""
    given = {
        "--phase": bool(options.phases),
        "--stairs": options.stairs is not None,
        "--stop-at": options.latency_ms is not None,
        "--max-invocations": options.max_invocations is not None,
        "--continue-when-flat": not options.stops_when_flat,
        "--max-tests": options.max_tests is not None,
        "--parallel": options.parallel != 1,
        "--variable": bool(options.parameters),
    }
    for flag in [flag for flag, is_given in given.items() if is_given]:
        yield f"{flag}: is of load tests, and a default job has a load of its own; add --advanced."


def _load_faults(options: RecommendOptions) -> Iterator[str]:
    if options.stairs is not None and options.phases:
        yield "--stairs: is another traffic pattern than --phase; give one of them."
    if options.stairs is not None:
        yield from _outside("--stairs", "users", options.stairs.users, PHASE_USERS)
        yield from _outside("--stairs", "seconds", options.stairs.seconds, PHASE_SECONDS)
        if options.stairs.steps < 1:
            yield "--stairs: steps 0 is not allowed; at least 1."
    for phase in options.phases:
        yield from _outside("--phase", "start", phase.start, PHASE_USERS)
        yield from _outside("--phase", "spawn", phase.spawn, PHASE_SPAWN_RATE)
        yield from _outside("--phase", "seconds", phase.seconds, PHASE_SECONDS)
    for before, after in pairwise(options.phases):
        if abs(after.start - before.last) > USERS_BETWEEN_PHASES:
            yield (
                f"--phase start={after.start}: the phase before ends with {before.last} users, and "
                f"a phase begins at most {USERS_BETWEEN_PHASES} away; let that one spawn fewer."
            )
    limits = {"--max-invocations": options.max_invocations, "--stop-at": options.latency_ms}
    for flag, value in limits.items():
        if value is not None and value < 1:
            yield f"{flag} {value}: is not allowed; at least 1."


def _outside(flag: str, name: str, value: int, allowed: Bounds) -> Iterator[str]:
    if value not in allowed:
        yield f"{flag}: {name} {value} is not allowed by AWS; {allowed}."


def _parameter_faults(options: RecommendOptions) -> Iterator[str]:
    given = options.parameters or {}
    if len(given) > PARAMETER_COUNT:
        yield f"--variable: {len(given)} variables; AWS takes {PARAMETER_COUNT} at most."
    for name, values in given.items():
        if len(name) > PARAMETER_NAME_LENGTH:
            yield f"--variable {name}: is longer than {PARAMETER_NAME_LENGTH} characters."
        if len(values) > PARAMETER_VALUES:
            count = len(values)
            yield f"--variable {name}: {count} values; AWS takes {PARAMETER_VALUES} at most."
        for value in [value for value in values if len(value) > PARAMETER_VALUE_LENGTH]:
            yield f"--variable {name}={value[:20]}…: is longer than {PARAMETER_VALUE_LENGTH}."


def _count_faults(options: RecommendOptions, instance_types: Sequence[str]) -> Iterator[str]:
    tests, seconds = options.tests(instance_types), options.duration_seconds(instance_types)
    is_load_test = options.job_type == "Advanced"
    if is_load_test and len(instance_types) > RECOMMENDATION_CONFIGURATIONS:
        yield (
            f"--instance-type: {len(instance_types)} types; a load test takes "
            f"{RECOMMENDATION_CONFIGURATIONS} at most."
        )
    if options.max_tests is not None and options.max_tests < tests:
        yield (
            f"--max-tests {options.max_tests}: the job has {tests} combinations, and AWS does not "
            "say which of them it would leave out; name fewer types or values."
        )
    if seconds not in RECOMMENDATION_SECONDS:
        what = "the job" if options.job_seconds is None else "--job-seconds"
        yield (
            f"{what}: {seconds:,} s are not allowed; {RECOMMENDATION_SECONDS}. Name fewer types or "
            "values, shorter phases, or more tests at once (--parallel)."
        )
    elif is_load_test and seconds < options.traffic_seconds:
        yield (
            f"--job-seconds {seconds}: is shorter than one load of {options.traffic_seconds} s; "
            "raise it, or shorten the phases."
        )


def traffic_pattern(options: RecommendOptions) -> dict[str, Any]:
    """Return a load test's TrafficPattern."""
    if options.stairs is not None:
        stairs = options.stairs
        return {
            "TrafficType": "STAIRS",
            "Stairs": {
                "DurationInSeconds": stairs.seconds,
                "NumberOfSteps": stairs.steps,
                "UsersPerStep": stairs.users,
            },
        }
    phases = [
        {
            "InitialNumberOfUsers": phase.start,
            "SpawnRate": phase.spawn,
            "DurationInSeconds": phase.seconds,
        }
        for phase in options.phases or DEFAULT_PHASES
    ]
    return {"TrafficType": "PHASES", "Phases": phases}
