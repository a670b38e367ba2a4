"""What builds engines.

A project for each route that the platform and the environment have, and roles that are exact.
"""

from __future__ import annotations

import fnmatch
import json
from typing import Any

import pytest

from onboarding import names
from onboarding.platform import build_route, serving_platforms
from stacks.builds.projects import (
    CPU,
    build_routes,
    machine_properties,
    project_properties,
    training_image,
)
from stacks.builds.roles import (
    job_statements,
    machine_statements,
    recommender_statements,
)
from stacks.builds.training_states import training_job
from tests.synth.assembly import Stacks, synthesized
from tests.synth.deployments import environment
from tests.synth.golden_build_machine import FLEET, IMAGE, KEY, whole

pytestmark = pytest.mark.synth
DEV = environment("dev")
BUCKET = "arn:aws:s3:::roundhouse-dev-111122223333-us-east-1"
HERE = "us-east-1:111122223333"


def by_sid(statements) -> dict[str, dict[str, Any]]:
    return {statement["Sid"]: statement for statement in statements}


def routes(spec, platform: str = "triton-26.05") -> list[str]:
    return [route.name for route in build_routes(spec, serving_platforms()[platform])]


@pytest.fixture(scope="module")
def stacks(tmp_path_factory) -> Stacks:
    return synthesized(tmp_path_factory.mktemp("whole"), whole(), ())


def test_routes_follow_the_platform_and_the_environment():
    assert routes(DEV) == ["cpu", "gpu"]
    assert routes(whole()) == ["cpu", "gpu", "fleet"]
    assert routes(whole(), "triton-24.10-cpu") == ["cpu"]


def test_no_gpu_project_is_where_codebuild_has_no_gpus():
    elsewhere = DEV.model_copy(update={"region": "eu-north-1"})
    assert routes(elsewhere) == ["cpu"]
    assert routes(elsewhere.model_copy(update={"gpu_fleet_arn": FLEET})) == ["cpu", "fleet"]


def test_an_environment_may_do_without_codebuilds_gpus():
    without = DEV.model_copy(
        update={"builds": DEV.builds.model_copy(update={"codebuild_gpu": False})}
    )
    assert routes(without) == ["cpu"]
    assert build_route("8.6", codebuild_gpu=without.has_codebuild_gpu) == "training-job"
    assert build_route("8.6", codebuild_gpu=without.has_codebuild_gpu, fleet=True) == "fleet"
    assert build_route("8.6", codebuild_gpu=DEV.has_codebuild_gpu, fleet=True) == "gpu"


@pytest.mark.parametrize(("spec", "key"), [(DEV, "alias/roundhouse-dev"), (whole(), KEY)])
def test_results_of_training_jobs_are_encrypted_by_the_environments_key(spec, key):
    assert training_job(spec, IMAGE)["OutputDataConfig"]["KmsKeyId"] == key
    statements = by_sid(job_statements(spec, "builder-gpu"))
    assert statements["UseKey"]["Action"] == ["kms:Decrypt", "kms:GenerateDataKey"]
    # SageMaker itself asks for it, so no service stands between.
    assert statements["EncryptOutput"]["Action"] == ["kms:Encrypt"]
    assert "kms:ViaService" not in str(statements["EncryptOutput"])


def test_training_jobs_compile_with_what_the_platform_serves_with():
    assert training_image(serving_platforms()["triton-26.05"]) == "builder-gpu"
    assert training_image(serving_platforms()["triton-24.10-cpu"]) == "builder-cpu"


def test_builds_end_when_the_environment_says():
    builds = DEV.builds.model_copy(update={"timeout_minutes": 77})
    spec = DEV.model_copy(update={"builds": builds})
    assert project_properties(spec, CPU, image_uri="i", buildspec="b")["TimeoutInMinutes"] == 77


def test_recommendation_jobs_serve_and_load_by_one_role(stacks):
    role = stacks["Builds"].properties("AWS::IAM::Role")["RecommenderRole"]
    assert role["RoleName"] == names.recommender(DEV) == "roundhouse-dev-recommender"
    statements = by_sid(recommender_statements(DEV))
    assert statements["PassRole"]["Resource"] == [names.recommender_arn(DEV)]
    assert statements["PassRole"]["Condition"] == {
        "StringEquals": {"iam:PassedToService": "sagemaker.amazonaws.com"}
    }
    made = statements["RunBenchmarks"]["Resource"]
    assert made == [
        f"arn:aws:sagemaker:{HERE}:{kind}/sm-epc-*"
        for kind in ("model", "endpoint-config", "endpoint")
    ]
    assert statements["ReadBenchmarkedModel"]["Resource"] == [
        f"arn:aws:sagemaker:{HERE}:model/roundhouse-dev--*"
    ]
    group = f"arn:aws:logs:{HERE}:log-group:/aws/sagemaker/Endpoints/sm-epc-*"
    assert statements["WriteBenchmarkLogs"]["Resource"] == [group, f"{group}:*"]
    assert statements["ReadObjects"]["Resource"] == [
        f"{BUCKET}/engines/*",
        f"{BUCKET}/jobs/payloads/*",
    ]
    # It writes no object, and reads no source, network or capture.
    assert "s3:PutObject" not in str(statements)
    payload = f"{BUCKET}/{names.sample_payload_path('0' * 64)}"
    assert fnmatch.fnmatch(payload, statements["ReadObjects"]["Resource"][1])


def test_definition_is_text_whose_numbers_stay_numbers():
    properties = machine_properties(DEV, {"States": {"Wait": {"Seconds": 3}}})
    assert json.loads(properties["DefinitionString"]) == {"States": {"Wait": {"Seconds": 3}}}


def test_machine_may_do_what_its_states_do(stacks):
    """Every API that a state calls is one of the role's actions, and the role has no action beside
    those and its own engines'.
    """
    text = stacks["Builds"].only("AWS::StepFunctions::StateMachine")["DefinitionString"]
    called = {part.split('"')[0] for part in text.split(":states:::aws-sdk:")[1:]}
    assert text.count(":states:::lambda:invoke") == 1
    called = {
        f"{service}:{action[0].upper()}{action[1:]}"
        for service, action in (entry.split(":") for entry in called)
    }
    signers = [names.signer(DEV)]
    statements = machine_statements(DEV, projects=["cpu"], job_role="role", signers=signers)
    allowed = {action for item in statements for action in item["Action"]}
    besides = {"sagemaker:AddTags", "iam:PassRole", "kms:Decrypt", "kms:GenerateDataKey"}
    besides.add("lambda:InvokeFunction")
    assert allowed == called | besides | {
        f"states:{verb}Execution" for verb in ("Start", "Describe", "Stop")
    }
