"""Tokens of a file of requests, and times of the engine: its own, its endpoint's or its lock's."""

from __future__ import annotations

import base64
import json
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onboarding.deployment import Deployment, Target
from onboarding.lock import LockEntry
from onboarding.names import artifact_bucket, endpoint_name, target_model
from roundhouse.aws.clients import calling
from roundhouse.errors import AwsError, NotReadyError, RoundhouseError
from roundhouse.lengths.costs import Parts, Table, lock_table
from roundhouse.lengths.options import TimedBy
from roundhouse.lengths.padding import Padding, Size
from roundhouse.lengths.saving import Times
from roundhouse.processes import Command
from roundhouse.report import Step
from roundhouse.session import Session

MODULE = "engine_build.lengths"
FAILED = "FAILED: "
MOST_LENGTHS = 48
"""Sizes that are timed, all row counts together."""
MOST_ROW_COUNTS = 4
MULTIPLE = 8


@dataclass(frozen=True, kw_only=True)
class Sampled:
    """One sampled request, or a part of it."""

    lengths: tuple[int, ...]
    body: bytes | None
    content_type: str


@dataclass(frozen=True, kw_only=True)
class Counted:
    """The tokens of a file of requests; fields as in engine_build/lengths/counts.py."""

    requests: int
    texts: int
    tokens: int
    lost_tokens: int
    truncated_requests: int
    truncated_texts: int
    refused: Mapping[str, int]
    skipped: Mapping[str, int]
    percentiles: Mapping[str, float]
    parts: tuple[Parts, ...]
    sample: tuple[Sampled, ...]
    words: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Timed:
    """Milliseconds of the engine, and who measured them."""

    table: Table
    source: str
    """A sentence."""
    by: TimedBy


def count_requests(
    session: Session, target: Target, entry: LockEntry, requests: Path, splits: bool, step: Step
) -> Counted:
    """Return the tokens of a file's requests, and leave the engine unpacked for `time_engine`.

    Raises RoundhouseError.
    """
    data = _run(
        session,
        step,
        *("count", "--out", str(work_folder(session, target)), "--requests", str(requests)),
        *("--store", f"s3://{artifact_bucket(session.environment)}"),
        *("--region", session.environment.region, "--engine-key", target.engine_key),
        *("--sha256", entry.archive.sha256, *(("--splits",) if splits else ())),
    )
    return parse_counts(data)


def parse_counts(data: Mapping[str, Any]) -> Counted:
    """Return what `count` printed."""
    names = ("rows", "longest", "count", "useful")
    sample = (
        Sampled(
            lengths=tuple(item["lengths"]),
            body=None if item["body"] is None else base64.b64decode(item["body"]),
            content_type=item["content_type"],
        )
        for item in data["sample"]
    )
    return Counted(
        **{
            **data,
            "parts": tuple(Parts(**dict(zip(names, item, strict=True))) for item in data["parts"]),
            "sample": tuple(sample),
            "words": tuple(data["words"]),
        }
    )


def work_folder(session: Session, target: Target) -> Path:
    """Return the folder that the engine is unpacked into."""
    build = session.paths.build
    return build / "lengths" / session.environment.name / target.model.name / "work"


def time_engine(
    session: Session, target: Target, found: Counted, padding: Padding, seconds: float, step: Step
) -> Timed:
    """Time the engine on this machine at the sizes of the requests. Raises RoundhouseError."""
    sizes = sizes_to_time(found.parts, padding)
    data = _time(session, target, found, {"shapes": sizes, "replays": {}}, seconds, step)
    measured = {(item["rows"], item["tokens"]): item["ms"] for item in data["shapes"]}
    runs = min(item["runs"] for item in data["shapes"])
    return Timed(
        table=Table(measured),
        source=f"the published engine on this machine: {len(sizes)} sizes, the median of {runs} "
        "runs or more each",
        by=TimedBy.engine,
    )


def replay(
    session: Session,
    target: Target,
    found: Counted,
    sample: Sequence[Sampled],
    paddings: Mapping[str, Padding],
    seconds: float,
    step: Step,
) -> dict[str, Times]:
    """Run sampled requests through the engine, padded in each way.

    Return the milliseconds of each request in each round, by the way's name. Raises
    RoundhouseError.
    """
    replays = {
        name: [
            [(lengths, *size) for size, lengths in _split(item.lengths, padding)] for item in sample
        ]
        for name, padding in paddings.items()
    }
    plan = {"shapes": [], "replays": replays}
    replayed: dict[str, Times] = _time(session, target, found, plan, seconds, step)["replays"]
    return replayed


def _split(lengths: Sequence[int], padding: Padding) -> Iterable[tuple[Size, Sequence[int]]]:
    """Yield each run of a part: its size, and the texts in it."""
    sizes, begin = padding.sizes(len(lengths), max(lengths)), 0
    for size in sizes:
        yield size, lengths[begin : begin + size[0]]
        begin += size[0]


def sizes_to_time(parts: Sequence[Parts], padding: Padding) -> tuple[Size, ...]:
    """Return sizes between and at those of the requests, every multiple of 8 if they are few."""
    counts = sorted({rows for part in parts for rows, _ in padding.sizes(part.rows, part.longest)})
    counts = spread(counts, MOST_ROW_COUNTS)
    lengths = {part.longest for part in parts} | {max(1, round(part.mean)) for part in parts}
    most = max(max(lengths), *(step for step in padding.steps))
    rounded = {min(most, -(-length // MULTIPLE) * MULTIPLE) for length in lengths}
    needed = {step for step in padding.steps if step >= min(rounded)}
    every = spread(sorted(rounded | needed | {min(lengths)}), MOST_LENGTHS // len(counts))
    return tuple((rows, length) for rows in counts for length in every)


def spread(values: Sequence[int], most: int) -> list[int]:
    """Return at most so many of the values, first and last among them."""
    if len(values) <= most:
        return list(values)
    places = {round(index * (len(values) - 1) / (most - 1)) for index in range(most)}
    return [values[place] for place in sorted(places)]


def time_endpoint(
    session: Session,
    deployment: Deployment,
    target: Target,
    found: Counted,
    padding: Padding,
    step: Step,
    *,
    clock: Callable[[], float] = time.perf_counter,
) -> Timed:
    """Send sampled requests to the endpoint, one at a time. Raises RoundhouseError."""
    name = endpoint_name(deployment.environment, deployment.name)
    where = {"TargetModel": target_model(target.engine_key)} if deployment.multi_model else {}
    bodies = [item for item in found.sample if item.body is not None]
    if not bodies:
        raise RoundhouseError(f"{name}: no sampled request is small enough to be sent again.")
    runtime, times = session.clients("sagemaker-runtime"), dict[Size, list[float]]()
    # The first one opens the connection, and is not counted.
    for index, item in enumerate([bodies[0], *bodies]):
        step.update(f"request {index} of {len(bodies)}")
        begin = clock()
        with calling(f"Endpoint {name}"):
            answer = runtime.invoke_endpoint(
                EndpointName=name, Body=item.body, ContentType=item.content_type, **where
            )
            answer["Body"].read()
        milliseconds = (clock() - begin) * 1000
        (size, *_) = padding.sizes(len(item.lengths), max(item.lengths))
        if index:
            times.setdefault(size, []).append(milliseconds)
    return Timed(
        table=Table({size: statistics.median(values) for size, values in times.items()}),
        source=f"endpoint {name}: {len(bodies)} of the requests, one at a time, network included",
        by=TimedBy.endpoint,
    )


def time_by_lock(entry: LockEntry, model: str) -> Timed:
    """Return the times of the lock's benchmark. Raises RoundhouseError."""
    manifest = entry.manifest
    table = lock_table(manifest.benchmark, (manifest.runtime.name, manifest.precision))
    if table is None:
        raise RoundhouseError(f"{model}: its lock has no benchmark of a sequence; build it again.")
    return Timed(
        table=table,
        source=f"the lock: {len(table.measured)} sizes that the build measured on "
        f"{manifest.builder.machine}, a straight line between them",
        by=TimedBy.lock,
    )


def endpoint_fault(session: Session, deployment: Deployment) -> str | None:
    """Return why a deployment's endpoint cannot be asked; None where it can."""
    name = endpoint_name(deployment.environment, deployment.name)
    if deployment.endpoint.asynchronous is not None:
        return f"{name} is asynchronous: its queue hides how long an instance takes"
    try:
        with calling("SageMaker"):
            status = session.clients("sagemaker").describe_endpoint(EndpointName=name)
    except AwsError as error:
        return str(error)
    is_ready = status["EndpointStatus"] == "InService"
    return None if is_ready else f"{name} is {status['EndpointStatus']}"


def _time(
    session: Session,
    target: Target,
    found: Counted,
    plan: Mapping[str, Any],
    seconds: float,
    step: Step,
) -> dict[str, Any]:
    folder = work_folder(session, target)
    path = folder / "plan.json"
    path.write_text(json.dumps({**plan, "words": found.words}), encoding="utf-8")
    where = ("--out", str(folder), "--plan", str(path), "--seconds", str(seconds))
    return _run(session, step, "time", *where)


def _run(session: Session, step: Step, *arguments: str) -> dict[str, Any]:
    """Return what the program printed last. Raises RoundhouseError."""
    python = session.paths.venv_python("builder")
    if not python.is_file():
        raise NotReadyError(f"{python}: is not there; `make setup` makes it.")
    outcome = session.run(
        Command(
            argv=(str(python), "-m", MODULE, *arguments),
            folder=session.paths.code,
            environment=session.variables,
        ),
        lambda line: None if line.startswith("{") else step.update(line),
    )
    if outcome.code != 0:
        _, has_message, message = outcome.output.partition(FAILED)
        raise RoundhouseError(
            message.strip() if has_message else f"{MODULE}: {outcome.last_lines() or 'no word'}"
        )
    result: dict[str, Any] = json.loads(outcome.output.strip().splitlines()[-1])
    return result
