"""One analysis from the file of requests to the report, and the proposal in the model file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from onboarding.deployment import Deployment, Target
from onboarding.lock import LockEntry
from onboarding.prices import price, prices_date
from roundhouse.errors import RoundhouseError
from roundhouse.lengths.costs import bucket_costs
from roundhouse.lengths.measurement import (
    Counted,
    Sampled,
    Timed,
    count_requests,
    endpoint_fault,
    replay,
    time_by_lock,
    time_endpoint,
    time_engine,
)
from roundhouse.lengths.options import LengthsOptions, TimedBy
from roundhouse.lengths.padding import Padding, default_padding, padding
from roundhouse.lengths.proposal import propose
from roundhouse.lengths.report import PRESENT, PROPOSED, LengthsReport, document, markdown
from roundhouse.lengths.saving import Times, measured_saving
from roundhouse.load_test.result import circumstances
from roundhouse.paths import Paths, output_folder
from roundhouse.session import Session
from roundhouse.text import choices, quantity

CPU = "cpu"
ROUNDS = 4
"""Of a replay, and its warm-up."""


def analyse_lengths(session: Session, model: str, options: LengthsOptions) -> LengthsReport:
    """Count, time and propose. Raises RoundhouseError."""
    deployment, target = find_target(session, model)
    entry = built_entry(session, target)
    manifest, report = entry.manifest, session.report
    pad_as = options.pad_as
    if pad_as is None:
        pad_as = default_padding(deployment.server, is_gpu=manifest.compute_capability != CPU)
    with report.step(f"Counting the tokens of {options.requests.name}") as step:
        splits = deployment.server == "python"
        found = count_requests(session, target, entry, options.requests, splits, step)
        step.finish(f"{quantity(found.requests, 'request')}, {quantity(found.texts, 'text')}")
    profiles, most_rows = manifest.optimization_profiles, manifest.max_batch_size
    present = padding(pad_as, profiles, most_rows)
    timed, notes = _time(session, deployment, target, entry, found, present, options)
    costs = bucket_costs(found.parts, present, timed.table, profiles)
    proposal = (
        propose(
            found.parts, profiles, pad_as, timed.table,
            most_profiles=options.most_profiles, most_rows=most_rows,
        )
        if costs
        else None
    )  # fmt: skip
    paddings = {PRESENT: present} | ({} if proposal is None else {PROPOSED: proposal.padding})
    replays: Mapping[str, Times] = {}
    sample = _sample(found, paddings.values(), timed, options.seconds / 2)
    if timed.by is TimedBy.engine and found.sample:
        with report.step("Replaying sampled requests through the engine") as step:
            replays = replay(session, target, found, sample, paddings, options.seconds / 2, step)
            step.finish(f"{quantity(len(sample), 'request')}, {len(paddings)} ways of padding")
    region, where = session.environment.region, circumstances()
    return LengthsReport(
        model=model,
        environment=session.environment.name,
        instance_type=target.instance_type.name,
        usd_an_hour=price(region, "hosting", target.instance_type.name),
        prices_date=prices_date(region),
        file=str(options.requests),
        found=found,
        timed=timed,
        timing_notes=notes,
        padding=present,
        profiles=profiles,
        costs=costs,
        proposal=proposal,
        replayed=len(sample) if replays else 0,
        replays=replays,
        measured=measured_saving(
            replays[PRESENT],
            replays[PROPOSED],
            is_sample=len(sample) < sum(part.count for part in found.parts),
        )
        if PROPOSED in replays
        else None,
        predicted={name: _predicted_ms(sample, paddings[name], timed) for name in replays},
        write_command=options.write_command,
        machine=where.machine,
        date=where.date,
    )


def _time(
    session: Session,
    deployment: Deployment,
    target: Target,
    entry: LockEntry,
    found: Counted,
    present: Padding,
    options: LengthsOptions,
) -> tuple[Timed, tuple[str, ...]]:
    """Return the times, and why they are not those of the engine itself."""
    by, notes = options.timed_by, list[str]()
    if by is TimedBy.auto:
        by = TimedBy.engine
        if entry.manifest.compute_capability != CPU:
            fault = endpoint_fault(session, deployment)
            by = TimedBy.endpoint if fault is None else TimedBy.lock
            notes.append(
                f"The engine is for {entry.manifest.compute_capability}, not this machine."
            )
            if fault is not None:
                notes.append(f"Its endpoint was not asked: {fault.rstrip('.')}.")
    if not found.parts or by is TimedBy.lock:
        return time_by_lock(entry, target.model.name), tuple(notes)
    what = "the endpoint" if by is TimedBy.endpoint else "the engine"
    with session.report.step(f"Timing {what}") as step:
        timed = (
            time_endpoint(session, deployment, target, found, present, step)
            if by is TimedBy.endpoint
            else time_engine(session, target, found, present, options.seconds / 2, step)
        )
        step.finish(f"{quantity(len(timed.table.measured), 'size')}")
    return timed, tuple(notes)


def _sample(
    found: Counted, paddings: Iterable[Padding], timed: Timed, seconds: float
) -> tuple[Sampled, ...]:
    """Return as many sampled requests as fit the time, padded in each way, in several rounds."""
    paddings, left = tuple(paddings), seconds * 1000 / ROUNDS
    for index, item in enumerate(found.sample):
        left -= sum(_predicted_ms((item,), how, timed) for how in paddings)
        if left < 0:
            return found.sample[: max(1, index)]
    return found.sample


def _predicted_ms(sample: Sequence[Sampled], how: Padding, timed: Timed) -> float:
    sizes = (size for item in sample for size in how.sizes(len(item.lengths), max(item.lengths)))
    return sum(timed.table.ms(*size) for size in sizes)


def find_target(session: Session, model: str) -> tuple[Deployment, Target]:
    """Return the first endpoint with a model, by name. Raises RoundhouseError."""
    targets = {
        target.model.name: (deployment, target)
        for deployment in reversed(session.deployments())
        for target in reversed(deployment.targets)
    }
    if model not in targets:
        raise RoundhouseError(
            f"{model!r}: no such model in environment {session.environment.name}; "
            f"{choices(model, sorted(targets))}"
        )
    return targets[model]


def built_entry(session: Session, target: Target) -> LockEntry:
    """Return the lock's entry. Raises RoundhouseError where nothing is built."""
    name, environment = target.model.name, session.environment.name
    if target.lock_entry is None:
        raise RoundhouseError(
            f"{name}: the lock has no engine {target.engine_key}; "
            f"`roundhouse build --env {environment} --model {name}` builds it."
        )
    manifest = target.lock_entry.manifest
    if manifest.tokenizer_file is None or manifest.preprocessing is not None:
        raise RoundhouseError(
            f"{name}: takes no texts that its own tokenizer reads, so no server pads its requests; "
            "choose a text model."
        )
    return target.lock_entry


def report_folder(paths: Paths, environment: str, model: str) -> Path:
    """Return the default folder of reports."""
    return paths.build / "lengths" / environment / model


def write_report(report: LengthsReport, folder: Path) -> None:
    """Write report.md and report.json. Raises RoundhouseError."""
    with output_folder(folder):
        (folder / "report.md").write_text(markdown(report), encoding="utf-8")
        text = json.dumps(document(report), indent=2) + "\n"
        (folder / "report.json").write_text(text, encoding="utf-8")


def write_profiles(paths: Paths, model: str, folder: Path) -> str:
    """Write the proposal of a report into its model file and return what was changed.

    Raises RoundhouseError; the file is as it was then.
    """
    from roundhouse.compare.write_back import edit_text, read_model_file, replace_model_file

    overrides = _proposed_overrides(folder / "report.json", model)
    file = paths.tree / "models" / f"{model}.yaml"
    before = read_model_file(file)
    after = edit_text(before, overrides)
    if after is None:
        raise RoundhouseError(
            f"models/{file.name}: cannot be edited without changing more; write the lines of "
            f"{folder / 'report.md'} into it yourself."
        )
    if after == before:
        return f"models/{file.name} has these profiles already: nothing was changed."
    replace_model_file(paths, file, after, "with these profiles")
    return f"models/{file.name} has the proposed profiles now; they are another engine: build it."


def _proposed_overrides(path: Path, model: str) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        overrides: dict[str, Any] | None = found["overrides"]
        written = found["model"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RoundhouseError(
            f"{path}: has no report; run the command with --requests FILE first."
        ) from error
    if written != model or overrides is None:
        raise RoundhouseError(f"{path}: proposes no profiles for {model}; nothing to write.")
    return overrides
