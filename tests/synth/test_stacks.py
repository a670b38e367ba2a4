"""Stacks beside the endpoints: what survives, what builds engines, and what builds read."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from aws_cdk import App, CfnResource, CloudFormationValidatePlugin, Stack, Validations
from aws_cdk.assertions import Template

from onboarding import names
from onboarding.environment_spec import EnvironmentSpec
from onboarding.platform import build_route, serving_platforms
from onboarding.source_access import SourceBucketSpec
from roundhouse_cdk.builds.roles import machine_statements
from roundhouse_cdk.builds.routes import build_routes, training_image
from roundhouse_cdk.statements import key_use, source_reads
from stacks.foundation_stack import FoundationStack
from tests.synth.assembly import SOURCES, Stacks, context, synthesized
from tests.synth.deployments import ROOT, environment, locked
from tests.synth.golden_build_machine import FLEET, whole
from tests.synth.pipeline import definition_text

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


def foundation(**changes: Any) -> dict[str, Any]:
    context = json.loads((ROOT / "cdk.json").read_text(encoding="utf-8"))["context"]
    spec: EnvironmentSpec = environment("dev").model_copy(update=changes)
    template: dict[str, Any] = Template.from_stack(
        FoundationStack(App(context=context), "Foundation", environment=spec)
    ).to_json()
    return template


def of_type(template: dict[str, Any], kind: str) -> dict[str, dict[str, Any]]:
    return {key: value for key, value in template["Resources"].items() if value["Type"] == kind}


def bucket_rules(template: dict[str, Any]) -> dict[str, dict[str, Any]]:
    (bucket,) = of_type(template, "AWS::S3::Bucket").values()
    return {rule["Id"]: rule for rule in bucket["Properties"]["LifecycleConfiguration"]["Rules"]}


def test_https_addresses_subscribe_to_the_alarms_whatever_their_order():
    first, second = "https://events.example.com/a", "https://events.example.com/b"
    both = of_type(foundation(alarm_https=[first, second]), "AWS::SNS::Subscription")
    found = [item["Properties"] for item in both.values()]
    assert {(item["Protocol"], item["Endpoint"]) for item in found} == {
        ("https", first),
        ("https", second),
    }
    assert {json.dumps(item["TopicArn"]) for item in found} == {json.dumps({"Ref": "Alarms"})}
    assert of_type(foundation(alarm_https=[second, first]), "AWS::SNS::Subscription") == both


def test_one_environment_of_an_account_turns_otel_enrichment_on_and_leaves_it():
    types = ("AWS::CloudWatch::OTelEnrichment", "AWS::ObservabilityAdmin::TelemetryEnrichment")
    for found in (foundation(), foundation(otel_enrichment="exists")):
        assert not any(of_type(found, kind) for kind in types)
    template = foundation(otel_enrichment="create")
    ((_, enrichment),) = of_type(template, types[0]).items()
    ((tags, resource_tags),) = of_type(template, types[1]).items()
    assert enrichment["DependsOn"] == [tags]
    for resource in (enrichment, resource_tags):
        assert resource["DeletionPolicy"] == "RetainExceptOnCreate"


def test_the_environment_says_how_long_a_marked_engine_stays():
    rules = bucket_rules(foundation(unreferenced_engine_days=7))
    assert (
        rules["UnreferencedEngines"]["ExpirationInDays"]
        == rules["UnreferencedNetworks"]["ExpirationInDays"]
        == rules["UnreferencedCheckpoints"]["ExpirationInDays"]
        == 7
    )
    assert rules["Sources"]["ExpirationInDays"] == 90


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


def test_an_environment_may_do_without_codebuilds_gpus():
    without = DEV.model_copy(
        update={"builds": DEV.builds.model_copy(update={"codebuild_gpu": False})}
    )
    assert routes(without) == ["cpu"]
    assert build_route("8.6", codebuild_gpu=without.has_codebuild_gpu) == "training-job"
    assert build_route("8.6", codebuild_gpu=without.has_codebuild_gpu, fleet=True) == "fleet"
    assert build_route("8.6", codebuild_gpu=DEV.has_codebuild_gpu, fleet=True) == "gpu"


def test_training_jobs_compile_with_what_the_platform_serves_with():
    assert training_image(serving_platforms()["triton-26.05"]) == "builder-gpu"
    assert training_image(serving_platforms()["triton-24.10-cpu"]) == "builder-cpu"


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


KEY = "arn:aws:kms:us-east-1:444455556666:key/0f8fad5b-d9cb-469f-a165-70867728950e"
SPEC = EnvironmentSpec(name="dev", account="111122223333", region="us-east-1", platform="p")
WHOLE = SourceBucketSpec(bucket="company-models")
PART = SourceBucketSpec(bucket="theirs", prefix="nlp/", kms_key_arn=KEY, account="444455556666")


def with_buckets(*buckets: SourceBucketSpec, **changes: object) -> EnvironmentSpec:
    return EnvironmentSpec.model_validate(
        {**SPEC.model_dump(exclude_unset=True), "source_buckets": buckets, **changes}
    )


def by_sid(statements):
    return {statement["Sid"]: statement for statement in statements}


def test_every_bucket_has_statements_of_its_own():
    found = by_sid(source_reads(with_buckets(WHOLE, PART)))
    assert list(found) == [
        "ReadSources",
        "ListSources",
        "ReadSources2",
        "ListSources2",
        "DecryptSources2",
    ]
    assert found["ReadSources"]["Resource"] == ["arn:aws:s3:::company-models/*"]


def test_an_environment_without_buckets_has_the_statements_of_before():
    assert source_reads(SPEC) == ()


@pytest.mark.parametrize("key", [None, FOREIGN_KEY])
def test_a_key_is_used_through_one_service_alone_whoever_made_it(key):
    (statement,) = key_use(SPEC.model_copy(update={"kms_key_arn": key}), ["kms:Decrypt"])
    through = {"kms:ViaService": "s3.us-east-1.amazonaws.com"}
    assert statement["Condition"]["StringEquals"] == through
    aliases = {"kms:ResourceAliases": "alias/roundhouse-dev"}
    assert statement["Condition"].get("ForAnyValue:StringEquals") == (aliases if not key else None)
    assert statement["Resource"] == [key or "arn:aws:kms:us-east-1:111122223333:key/*"]
