"""Stacks beside the endpoints: what survives, what builds engines, and what builds read."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from aws_cdk import App, CfnResource, CloudFormationValidatePlugin, Stack, Validations

from onboarding import names
from onboarding.environment_spec import EnvironmentSpec
from onboarding.platform import serving_platforms
from roundhouse_cdk.build_project import build_routes
from roundhouse_cdk.build_roles import machine_statements
from roundhouse_cdk.statements import Permissions
from tests.synth.assembly import SOURCES, Stacks, context, synthesized
from tests.synth.deployments import environment, locked
from tests.synth.pipeline import FLEET, definition_text, whole

pytestmark = pytest.mark.synth


def test_changed_container_source_changes_the_image_and_the_model(tmp_path):
    more = {**SOURCES.image_files["triton"], "container/new.py": b"x"}
    changed = dataclasses.replace(SOURCES, image_files={**SOURCES.image_files, "triton": more})
    before, after = (
        synthesized(tmp_path / name, environment("dev"), locked("dev"), sources)
        for name, sources in (("before", SOURCES), ("after", changed))
    )
    model = "AWS::SageMaker::Model"
    old, new = (stacks["Endpoint-text-shared"].only(model) for stacks in (before, after))
    assert old["PrimaryContainer"]["Image"] != new["PrimaryContainer"]["Image"]
    assert old["ModelName"] != new["ModelName"]
    for name in ("Foundation", "Builds"):
        assert before[name].template == after[name].template


def test_refuses_what_the_built_in_validation_refuses(tmp_path):
    """The switch in cdk.json makes errors of what would be warnings."""
    app = App(outdir=str(tmp_path), context=context())
    Validations.of(app).add_plugins(CloudFormationValidatePlugin())
    properties = {"RetentionInDays": "never"}
    CfnResource(Stack(app, "Logs"), "Group", type="AWS::Logs::LogGroup", properties=properties)
    with pytest.raises(RuntimeError, match="F3012"):
        app.synth()


"""A changed logical id is another resource to CloudFormation.

It would make a second bucket of one name, and fail.
"""
FOREIGN_KEY = "arn:aws:kms:us-east-1:111122223333:key/0f8fad5b-d9cb-469f-a165-70867728950e"


def of_type(template: dict[str, Any], kind: str) -> dict[str, dict[str, Any]]:
    return {key: value for key, value in template["Resources"].items() if value["Type"] == kind}


def test_a_key_of_the_account_encrypts_bucket_and_topic_and_says_what_its_policy_needs(tmp_path):
    spec = environment("dev").model_copy(update={"kms_key_arn": FOREIGN_KEY})
    template = synthesized(tmp_path, spec, ())["Foundation"].template
    (signing_key,) = of_type(template, "AWS::KMS::Key").values()
    assert signing_key["Properties"]["KeyUsage"] == "SIGN_VERIFY"
    (bucket,) = of_type(template, "AWS::S3::Bucket").values()
    topics = of_type(template, "AWS::SNS::Topic").values()
    (rule,) = bucket["Properties"]["BucketEncryption"]["ServerSideEncryptionConfiguration"]
    assert rule["ServerSideEncryptionByDefault"]["KMSMasterKeyID"] == FOREIGN_KEY
    assert {topic["Properties"]["KmsMasterKeyId"] for topic in topics} == {FOREIGN_KEY}
    messages = [
        entry for path in tmp_path.rglob("*.json") for entry in infos(json.loads(path.read_text()))
    ]
    assert any(FOREIGN_KEY in text and "docs/security.md" in text for text in messages)


def infos(node: Any) -> list[str]:
    """Every info annotation anywhere in a document of the assembly."""
    if isinstance(node, dict):
        own = [str(node["data"])] if node.get("type") == "aws:cdk:info" else []
        return own + [text for element in node.values() for text in infos(element)]
    return [text for item in node for text in infos(item)] if isinstance(node, list) else []


DEV = environment("dev")


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


def test_machine_may_do_what_its_states_do(stacks):
    """Every API that a state calls is one of the role's actions, and the role has no action beside
    those and its own engines'.
    """
    text = definition_text(stacks["Builds"].template["Resources"])
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


SPEC = EnvironmentSpec(name="dev", account="111122223333", region="us-east-1", platform="p")


@pytest.mark.parametrize("key", [None, FOREIGN_KEY])
def test_a_key_is_used_through_one_service_alone_whoever_made_it(key):
    may = Permissions(SPEC.model_copy(update={"kms_key_arn": key}))
    statement = may.use_key(writes=False)
    through = {"kms:ViaService": "s3.us-east-1.amazonaws.com"}
    assert statement["Condition"]["StringEquals"] == through
    aliases = {"kms:ResourceAliases": "alias/roundhouse-dev"}
    assert statement["Condition"].get("ForAnyValue:StringEquals") == (aliases if not key else None)
    assert statement["Resource"] == [key or "arn:aws:kms:us-east-1:111122223333:key/*"]
