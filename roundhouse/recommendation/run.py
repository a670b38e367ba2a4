"""A recommendation job from its options to its comparison with our own measurements."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from roundhouse.deploy.images import environment_image_uris
from roundhouse.load_test.inputs import read_inputs
from roundhouse.paths import displayed_path
from roundhouse.recommendation.comparison import MINUTE, ComparedJob, compare_with_own
from roundhouse.recommendation.job import open_job
from roundhouse.recommendation.options import RecommendOptions, require_bounds
from roundhouse.recommendation.payload import sample_payload
from roundhouse.recommendation.quotas import require_quotas
from roundhouse.recommendation.request import JobRequest, job_request
from roundhouse.recommendation.result import write_record
from roundhouse.recommendation.subject import Subject, find_subject
from roundhouse.session import Session, lock_folder


def prepare_job(
    session: Session, model: str, options: RecommendOptions, input: Path | None
) -> tuple[Subject, JobRequest]:
    """Return what is measured and the requests of its job, without a call to AWS.

    `input`: a file of requests; None: the model's accuracy dataset. Raises RoundhouseError.
    """
    subject = find_subject(
        session.deployments(),
        model,
        options.instance_types,
        is_load_test=options.job_type == "Advanced",
    )
    require_bounds(options, subject.instance_types)
    spec = subject.target.model
    inputs = read_inputs(
        session.paths.tree / spec.accuracy.dataset if input is None else input,
        rows_per_request=options.rows,
        binary=False,
        paired=spec.task == "text-ranking",
    )
    uris = environment_image_uris(session)
    return subject, job_request(subject, options, sample_payload(inputs), uris)


def run_job(
    session: Session,
    subject: Subject,
    request: JobRequest,
    *,
    demand: float | None = None,
    again: bool = False,
    sleep: Callable[[float], None] = time.sleep,
) -> ComparedJob:
    """Begin, find or follow a job, keep what it found beside the lock, and compare it.

    `demand`: requests a second that scaling is asked for; `again`: measure what a completed job
    measured. Raises RoundhouseError, AwsError; KeyboardInterrupt leaves the job to itself.
    """
    folder = lock_folder(session, "recommend")
    for note in subject.notes:
        session.report.print(f"– {note}")
    require_quotas(session, subject.instance_types)
    job = open_job(session, request, again=again, sleep=sleep)
    job.follow()
    record = job.record(None if demand is None else max(1, round(demand * MINUTE)))
    kept = write_record(folder, subject.model, record)
    session.report.print(f"Kept in {displayed_path(kept)}: review and commit it.")
    cells = session.paths.build / "compare" / session.environment.name / subject.model / "results"
    return compare_with_own(subject, record, cells)
