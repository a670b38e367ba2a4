"""CodeBuild: StartBuild runs the project's buildspec as processes, and says how it went."""

import io
import zipfile
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

from tests.local_cloud.account import (
    BUCKET,
    SLEEPS,
    build,
    marked_processes,
    until,
    wait_until_gone,
)
from tests.local_cloud.build_machine import write_capacity

pytestmark = pytest.mark.local_cloud
SUCCEEDS = """
version: 0.2
env: {variables: {FROM_SPEC: spec, GIVEN: spec}}
phases:
  install:
    commands:
      - export CARRIED=across
      - cd inner
  build:
    commands:
      - echo "$CARRIED $FROM_SPEC $GIVEN $(cat note.txt) $(basename "$PWD")"
      - test "$CODEBUILD_SRC_DIR/inner" = "$PWD"
      - test -z "$PYTHONPATH" && test -n "$CODEBUILD_BUILD_ID"
      - python -c "import urllib.request, os; urllib.request.urlopen(os.environ['AWS_ENDPOINT_URL'] + '/_ministack/health')"
  post_build:
    commands: [echo "build succeeding is $CODEBUILD_BUILD_SUCCEEDING"]
"""
FAILS = """
version: 0.2
phases:
  build:
    commands:
      - echo starting
      - "echo 'accuracy budget missed: mean 0.91 < 0.99' && exit 3"
      - echo never
  post_build:
    commands: [echo "build succeeding is $CODEBUILD_BUILD_SUCCEEDING"]
"""


def now(cloud, build_id):
    return cloud.client("codebuild").batch_get_builds(ids=[build_id])["builds"][0]


def finished_build(cloud, build_id):
    return until(lambda: found if (found := now(cloud, build_id))["buildComplete"] else None)


def log_text(record):
    return Path(record["logs"]["deepLink"].removeprefix("file://")).read_text()


def failed_phase(record):
    phase = next(
        phase for phase in record["phases"] if phase.get("phaseStatus") not in ("SUCCEEDED", None)
    )
    return phase["phaseType"], phase["contexts"][0]["statusCode"], phase["contexts"][0]["message"]


def test_build_runs_its_phases_on_the_source_from_s3(cloud):
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("inner/note.txt", "noted")
    cloud.client("s3").put_object(Bucket=BUCKET, Key="sources/1.zip", Body=content.getvalue())
    record = finished_build(
        cloud,
        build(
            cloud,
            "succeeds",
            SUCCEEDS,
            sourceTypeOverride="S3",
            sourceLocationOverride=f"{BUCKET}/sources/1.zip",
            environmentVariablesOverride=[{"name": "GIVEN", "value": "override"}],
        ),
    )
    assert (record["buildStatus"], record["currentPhase"]) == ("SUCCEEDED", "COMPLETED"), log_text(
        record
    )
    assert "across spec override noted inner" in log_text(record)
    assert "build succeeding is 1" in log_text(record)
    assert [phase["phaseType"] for phase in record["phases"]] == [
        "SUBMITTED",
        "QUEUED",
        "PROVISIONING",
        "DOWNLOAD_SOURCE",
        "INSTALL",
        "BUILD",
        "POST_BUILD",
        "UPLOAD_ARTIFACTS",
        "FINALIZING",
        "COMPLETED",
    ]
    assert wait_until_gone("succeeds")


def test_failed_build_names_the_command_and_its_last_words(cloud):
    record = finished_build(cloud, build(cloud, "fails", FAILS))
    assert record["buildStatus"] == "FAILED"
    phase, code, message = failed_phase(record)
    assert (phase, code) == ("BUILD", "COMMAND_EXECUTION_ERROR")
    assert (
        "exit status 3. Last line of the log: accuracy budget missed: mean 0.91 < 0.99" in message
    )
    assert "never" not in log_text(record).splitlines()
    assert "build succeeding is 0" in log_text(record)


EXPORTS = r"""
version: 0.2
env: {exported-variables: [REASON, NEVER_SET]}
phases:
  build: {commands: ["exit 3"]}
  post_build:
    commands:
      - export OTHER=unseen REASON='mean "0.91", $5 of `it` \ and
        more'
"""


def test_failed_build_tells_the_variables_that_its_buildspec_exports(cloud):
    record = finished_build(cloud, build(cloud, "exports", EXPORTS))
    assert record["buildStatus"] == "FAILED"
    assert record["exportedEnvironmentVariables"] == [
        {"name": "REASON", "value": 'mean "0.91", $5 of `it` \\ and more'}
    ]


def test_a_start_that_is_repeated_with_its_token_is_one_build(cloud):
    first = build(cloud, "token", SUCCEEDS.replace("cd inner", "true"), idempotencyToken="once")
    again = cloud.client("codebuild").start_build(projectName="token", idempotencyToken="once")[
        "build"
    ]["id"]
    other = cloud.client("codebuild").start_build(projectName="token", idempotencyToken="twice")[
        "build"
    ]["id"]
    assert again == first != other
    finished_build(cloud, first)
    finished_build(cloud, other)


def test_refuses_more_builds_than_the_account_may_have(cloud):
    write_capacity(cloud.state, **{"concurrent builds": 0})
    try:
        with pytest.raises(
            ClientError,
            match=r"AccountLimitExceededException.*Cannot have more than 0 builds in queue",
        ):
            build(cloud, "beyond", SLEEPS)
    finally:
        write_capacity(cloud.state)


def test_stopped_build_leaves_no_process(cloud):
    build_id = build(cloud, "stops", SLEEPS)
    until(
        lambda: (
            now(cloud, build_id)["currentPhase"] == "BUILD" and len(marked_processes("stops")) > 2
        )
    )
    assert cloud.client("codebuild").stop_build(id=build_id)["build"]["buildStatus"] == "STOPPED"
    assert wait_until_gone("stops")


def test_build_that_takes_too_long_is_ended(cloud):
    record = finished_build(cloud, build(cloud, "slow", SLEEPS, timeoutInMinutesOverride=0))
    assert record["buildStatus"] == "TIMED_OUT"
    assert failed_phase(record)[:2] == ("BUILD", "BUILD_TIMED_OUT")
    assert wait_until_gone("slow")


@pytest.mark.parametrize(
    ("name", "change", "phase", "message"),
    [
        ("gpu", {"kind": "LINUX_GPU_CONTAINER"}, "PROVISIONING", "this machine has no GPU"),
        (
            "image",
            {"image": "somewhere/unheard-of"},
            "PROVISIONING",
            "no local environment stands for the image",
        ),
        (
            "yaml",
            {"buildspec": "version: 0.2\nphases: [\n"},
            "DOWNLOAD_SOURCE",
            "the buildspec does not parse",
        ),
        (
            "lost",
            {"sourceTypeOverride": "S3", "sourceLocationOverride": "engines/none.zip"},
            "DOWNLOAD_SOURCE",
            "NoSuchKey",
        ),
    ],
)
def test_refuses_a_build(cloud, name, change, phase, message):
    record = finished_build(
        cloud, build(cloud, f"refused-{name}", **{"buildspec": SLEEPS, **change})
    )
    assert record["buildStatus"] == "FAILED"
    assert failed_phase(record)[0] == phase
    assert message in failed_phase(record)[2]
