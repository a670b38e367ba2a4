"""The story of an engine in a real account: built, deployed, answers, rolled back, destroyed.

`ROUNDHOUSE_AWS_ENVIRONMENT=dev ROUNDHOUSE_AWS_MAX_USD=40 make test-aws` plays it in the account of
environment `dev`, with the AWS credentials of this shell; `ROUNDHOUSE_AWS_ENVIRONMENT=local` plays
it in a local cloud. It begins and ends with a cleaning, so that after a killed run the same command
again leaves nothing.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest

from local_cloud import lifecycle
from onboarding.lock import read_lock, write_lock_entry
from roundhouse.deploy.stacks import stack_summaries
from roundhouse.session import LOCAL, cloud_folder
from tests.aws.cleanup import clean, endpoints, own_stacks, session_of
from tests.aws.trial import MODEL, ROOT, Refused, Trial, new_trial, require_within, run_roundhouse

pytestmark = pytest.mark.aws

ENVIRONMENT, MAX_USD = "ROUNDHOUSE_AWS_ENVIRONMENT", "ROUNDHOUSE_AWS_MAX_USD"
TEXT = "a red train"


@pytest.fixture
def trial() -> Iterator[Trial]:
    """The story's tree and a clean account; everything is deleted however it ends."""
    origin = os.environ.get(ENVIRONMENT)
    if origin is None:
        pytest.skip(f"{ENVIRONMENT} names no environment; `{ENVIRONMENT}=dev {MAX_USD}=40`")
    if origin != LOCAL and boto3.Session().get_credentials() is None:
        pytest.skip("this shell has no AWS credentials")
    try:
        trial = new_trial(origin, ROOT / "build" / "aws" / "tree")
        bound = trial.bound_usd()
        require_within(bound, os.environ.get(MAX_USD))
    except Refused as refusal:
        pytest.fail(f"refused: {refusal}", pytrace=False)
    print(f"at most {bound:.2f} USD")
    if trial.is_local:
        if lifecycle.find(cloud_folder(trial.paths)) is not None:
            pytest.fail("a local cloud is up, which cleaning would empty: `roundhouse down`")
        assert run_roundhouse("up", minutes=5).returncode == 0
    try:
        clean(trial)
        yield trial
    finally:
        try:
            clean(trial)
        finally:
            if trial.is_local:
                assert run_roundhouse("down", minutes=5).returncode == 0


def test_an_engine_is_built_deployed_answers_is_rolled_back_and_destroyed(trial: Trial) -> None:
    succeed(trial, "deploy", "deploy", "--yes", "--allow-dirty")
    locks = trial.tree / trial.environment.locks
    (entry,) = read_lock(locks, MODEL).engines.values()
    assert entry.manifest.compute_capability == trial.instance_type.compute_capability
    assert {record.verdict for record in entry.manifest.accuracy} == {"pass"}

    known = succeed(trial, "build", "build", "--allow-dirty", "--format", "json")
    assert json.loads(known)["built"] == []
    before = endpoint_facts(trial)
    assert before["EndpointStatus"] == "InService"
    vector = answer(trial)
    assert sum(value * value for value in vector) == pytest.approx(1, abs=1e-3)

    with_refused_version(trial, locks)
    session = session_of(trial)
    (stack,) = own_stacks(session, f"endpoint-{MODEL}")
    status = stack_summaries(session.clients("cloudformation"))[stack.name].status
    assert status == "UPDATE_ROLLBACK_COMPLETE"
    assert endpoint_facts(trial) == before
    assert answer(trial) == pytest.approx(vector, abs=1e-5)

    name = trial.environment.name
    succeed(trial, "destroy", "destroy", "--confirm", name, "--builds")
    assert endpoints(session) == [] and own_stacks(session, "endpoint-") == []


def succeed(trial: Trial, step: str, *words: str) -> str:
    """Run a command that must succeed; return its standard output."""
    result = trial.run(step, *words)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def answer(trial: Trial) -> list[float]:
    """Return the vector of one text, by `roundhouse invoke`."""
    shown = succeed(trial, "invoke", "invoke", MODEL, TEXT, "--format", "json")
    (document,) = json.loads(shown)
    return [float(value) for value in document["embedding"]]


def endpoint_facts(trial: Trial) -> dict[str, str]:
    """Return which endpoint config SageMaker serves, and the endpoint's status."""
    sagemaker = session_of(trial).clients("sagemaker")
    shown = sagemaker.describe_endpoint(EndpointName=trial.endpoint)
    return {name: shown[name] for name in ("EndpointConfigName", "EndpointStatus")}


def with_refused_version(trial: Trial, locks: Path) -> None:
    """Deploy a version whose containers refuse it, and restore the lock.

    It is the same archive under a manifest that is not its own: the lock agrees with S3, so it is
    deployed, and each new container refuses the archive with one sentence and ends.
    """
    (entry,) = read_lock(locks, MODEL).engines.values()
    changes = {"load_seconds": entry.manifest.load_seconds + 1.0}
    manifest = entry.manifest.model_copy(update=changes)
    archive = entry.archive.model_copy(update={"manifest_sha256": manifest.sha256()})
    bad = entry.model_copy(update={"manifest": manifest, "archive": archive})
    write_lock_entry(locks, MODEL, bad)
    try:
        result = trial.run("refused deploy", "deploy", "--yes", "--allow-dirty")
        assert result.returncode != 0, "the bad version was deployed"
        assert "Traceback" not in result.stderr
    finally:
        write_lock_entry(locks, MODEL, entry)
