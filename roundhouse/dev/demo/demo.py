"""The demo: the whole pipeline on this machine, from a YAML file to checked answers."""

from __future__ import annotations

import time
from functools import partial

from onboarding.deployment import Deployment, Target
from roundhouse import invocation
from roundhouse.deploy.deployment import DeployOptions, deploy
from roundhouse.dev.demo.answers import (
    TEXTS,
    Answer,
    measured_answer,
    require_sound,
    search_table,
    summary_table,
)
from roundhouse.dev.demo.reference_vectors import Reference, reference_vectors
from roundhouse.dev.environments import prepare_local_cloud
from roundhouse.paths import current_paths
from roundhouse.processes import Processes
from roundhouse.report import open_report
from roundhouse.session import LOCAL, Session, open_session, start_local_cloud


def run_demo() -> None:
    """Start the local cloud, deploy, invoke both endpoints, compare with PyTorch, print tables.

    Raises RoundhouseError as soon as something does not hold.
    """
    paths, report, processes = current_paths(), open_report(), Processes()
    begin = time.monotonic()
    prepare_local_cloud(paths)
    cloud = start_local_cloud(paths, report)
    session = open_session(paths, report, LOCAL, processes)
    options = DeployOptions(yes=True, concurrency=4, rebuild_gone=True)
    # Beside the first deployments, which leave a core idle; never beside the builds, whose
    # benchmarks it would spoil.
    with reference_vectors(session, TEXTS, processes.stop) as reference_of:
        done = deploy(session, options, before_builds=reference_of)
        reference = reference_of()
    answers = _answers(session, reference)
    report.print_table(search_table(answers))
    caption = (
        f"{len(done.built)} engines built, {done.verified} archives verified; stacks: "
        f"{len(done.deployed.changed)} changed, {len(done.deployed.unchanged)} with no changes; "
        f"every vector checked against PyTorch; {time.monotonic() - begin:.0f} s in all."
    )
    titles = [(title.split(" "), seconds) for title, seconds in report.times]
    build_seconds = {words[1]: seconds for words, seconds in titles if words[0] == "Building"}
    report.print_table(summary_table(answers, build_seconds))
    report.print(caption)
    report.print(
        f"The local cloud stays up at {cloud.endpoint_url}. Invoke it yourself, or `roundhouse "
        "down`:"
    )
    report.print(
        f"  .venv/bin/roundhouse invoke {session.deployments()[0].name} --env local "
        '"a cat" "a kitten" "a steam engine"'
    )


def _answers(session: Session, reference: Reference) -> tuple[Answer, ...]:
    with session.report.step("Asking both endpoints (boto3 invoke_endpoint)") as step:
        answers = tuple(
            _answer(session, deployment, target, reference)
            for deployment in session.deployments()
            for target in deployment.targets
        )
        for answer in answers:
            require_sound(answer)
        step.finish(
            f"{len(answers)} models, {len(TEXTS)} texts each, every vector as PyTorch's "
            "within its budget"
        )
    return answers


def _answer(
    session: Session, deployment: Deployment, target: Target, reference: Reference
) -> Answer:
    assert target.lock_entry is not None
    address, _ = invocation.address([deployment], deployment.name, target.model.name)
    return measured_answer(
        partial(invocation.invoke_texts, session.clients("sagemaker-runtime"), address),
        target,
        target.lock_entry.manifest,
        reference[target.model.name],
        endpoint=address.endpoint,
        server=deployment.server,
    )
