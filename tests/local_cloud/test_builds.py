"""CodeBuild: StartBuild runs the project's buildspec as processes, and says how it went."""

import io
import zipfile
from pathlib import Path

import pytest

from tests.local_cloud.account import (
    BUCKET,
    SLEEPS,
    build,
    until,
    wait_until_gone,
)

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


def test_build_that_takes_too_long_is_ended(cloud):
    record = finished_build(cloud, build(cloud, "slow", SLEEPS, timeoutInMinutesOverride=0))
    assert record["buildStatus"] == "TIMED_OUT"
    assert failed_phase(record)[:2] == ("BUILD", "BUILD_TIMED_OUT")
    assert wait_until_gone("slow")
