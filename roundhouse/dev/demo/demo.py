"""The demo: the whole road on this machine, from a YAML file to checked answers of two endpoints."""

from __future__ import annotations

import hashlib
import json
import time
from pathlib import Path

from local_cloud import lifecycle
from local_cloud.address import CloudAddress
from onboarding.deployment import Deployment, Target
from roundhouse import invocation
from roundhouse.deploy import deployment
from roundhouse.deploy.builds.source import folder_digest
from roundhouse.deploy.deployment import DeployOptions
from roundhouse.dev.demo.judging import Answer, least_cosine, require_sound, worst_cosine
from roundhouse.dev.demo.reference_vectors import reference_vectors
from roundhouse.dev.demo.result import search_table, summary_table
from roundhouse.dev.demo.search import TEXTS
from roundhouse.errors import DeployFailedError
from roundhouse.paths import Paths, current_paths
from roundhouse.processes import Processes
from roundhouse.report import Report, open_report
from roundhouse.session import LOCAL, Session, cloud_folder, open_session

SERVERS = {"python": "Python server", "triton": "Triton"}


def run_demo() -> None:
    """Cloud, deploy, search, judgement, table.

    Raises RoundhouseError as soon as something does not hold.
    """
    at, report, processes, begin = (
        current_paths(),
        open_report(),
        Processes(),
        time.monotonic(),
    )
    address = _cloud_up(at, report)
    session = open_session(at, report, LOCAL, processes)
    # Beside the first deployments, which leave a core idle; never beside the builds, whose
    # benchmarks it would spoil.
    with reference_vectors(session, TEXTS, processes.stop) as reference_of:
        done = deployment.deploy(
            session,
            DeployOptions(yes=True, concurrency=4, rebuild_gone=True),
            before_builds=reference_of,
        )
        reference = reference_of()
    mark = json.dumps({"cloud": [address.pid, address.pid_started], "sources": _fingerprint(at)})
    _require_empty_diff(at, mark, done)
    answers = _answers(session, reference)
    report.console.print(search_table(answers))
    seconds = time.monotonic() - begin
    caption = (
        f"{len(done.built)} engines built, {done.verified} archives verified; stacks: {len(done.deployed.changed)} changed, "
        f"{len(done.deployed.unchanged)} with no changes; every vector checked against PyTorch; {seconds:.0f} s in all."
    )
    report.console.print(summary_table(answers, _build_seconds(report), caption))
    _remember(at, mark)
    report.print(
        f"The local cloud stays up at {address.endpoint_url}. Ask it yourself, or `make down`:"
    )
    report.print(
        '  .venv/bin/roundhouse invoke sentence-embedder --env local "a cat" "a kitten" "a steam engine"'
    )


def _cloud_up(at: Paths, report: Report) -> CloudAddress:
    with report.step("Local cloud") as step:
        address = lifecycle.start(at.code, cloud_folder(at))
        step.done(
            f"{address.endpoint_url}, log {(cloud_folder(at) / lifecycle.LOG_FILE).relative_to(at.code)}"
        )
    return address


def _answers(
    session: Session, reference: dict[str, tuple[invocation.Vector, ...]]
) -> tuple[Answer, ...]:
    with session.report.step("Asking both endpoints (boto3 invoke_endpoint)") as step:
        pairs = [
            (deployment, target)
            for deployment in session.deployments()
            for target in deployment.targets
        ]
        answers = tuple(
            _answer(session, deployment, target, reference[target.model.name])
            for deployment, target in pairs
        )
        for answer in answers:
            require_sound(answer)
        step.done(
            f"{len(answers)} models, {len(TEXTS)} texts each, every vector as PyTorch's within its budget"
        )
    return answers


def _answer(
    session: Session,
    deployment: Deployment,
    target: Target,
    reference: tuple[invocation.Vector, ...],
) -> Answer:
    assert target.lock_entry is not None
    to, _ = invocation.address([deployment], deployment.name, target.model.name)
    runtime = session.clients("sagemaker-runtime")
    invocation.invoke_texts(runtime, to, TEXTS[:1])
    begin = time.monotonic()
    vectors = invocation.invoke_texts(runtime, to, TEXTS)
    manifest = target.lock_entry.manifest
    return Answer(
        model=target.model.name,
        endpoint=to.endpoint,
        server=SERVERS[deployment.server],
        manifest=manifest,
        vectors=vectors,
        milliseconds=1000 * (time.monotonic() - begin),
        worst=worst_cosine(vectors, reference),
        least=least_cosine(target, manifest),
    )


def _build_seconds(report: Report) -> dict[str, float]:
    titles = [(title.split(" "), seconds) for title, seconds in report.times]
    return {words[1]: seconds for words, seconds in titles if words[0] == "Building"}


def _require_empty_diff(at: Paths, mark: str, done: deployment.DeployResult) -> None:
    """After a whole walk over the same files in the same cloud, nothing may change."""
    if done.built or not done.deployed.changed or not _mark_file(at).is_file():
        return
    if _mark_file(at).read_text(encoding="utf-8") == mark:
        changed = ", ".join(done.deployed.changed)
        raise DeployFailedError(
            f"Nothing was edited since the last demo, and yet cdk deploy changed {changed}."
        )


def _fingerprint(at: Paths) -> str:
    folders = (
        "onboarding",
        "engine_build",
        "container",
        "stacks",
        "models",
        "endpoints",
        "environments",
        "build/local/locks",
    )
    digest = hashlib.sha256(folder_digest(at.code, folders).encode())
    for name in ("app.py", "cdk.json"):
        digest.update((at.code / name).read_bytes())
    return digest.hexdigest()


def _mark_file(at: Paths) -> Path:
    return at.build / "demo" / "walked.json"


def _remember(at: Paths, mark: str) -> None:
    _mark_file(at).parent.mkdir(parents=True, exist_ok=True)
    _mark_file(at).write_text(mark, encoding="utf-8")
