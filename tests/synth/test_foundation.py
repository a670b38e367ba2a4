"""What survives: names that never change, and rules of how long what is not needed stays."""

from __future__ import annotations

import json
from typing import Any

import pytest
from aws_cdk import App
from aws_cdk.assertions import Template

from onboarding.environment_spec import EnvironmentSpec, NetworkSpec, SlackSpec
from stacks.foundation_stack import FoundationStack
from tests.synth.assembly import synthesized
from tests.synth.deployments import ROOT, environment

pytestmark = pytest.mark.synth

STATEFUL_IDS = {
    "Key961B73FD": "AWS::KMS::Key",
    "KeyAlias910D852D": "AWS::KMS::Alias",
    "Artifacts82DD59A1": "AWS::S3::Bucket",
    "ArtifactsPolicy6E9058CC": "AWS::S3::BucketPolicy",
    "PythonServerEC0DBD3C": "AWS::ECR::Repository",
    "PythonServerGpu1E425C58": "AWS::ECR::Repository",
    "Triton6286415A": "AWS::ECR::Repository",
    "BuilderCpu1622392C": "AWS::ECR::Repository",
    "BuilderGpu95FFCC31": "AWS::ECR::Repository",
    "Alarms": "AWS::SNS::Topic",
    "AlarmsPolicy": "AWS::SNS::TopicPolicy",
    "Answers": "AWS::SNS::Topic",
    "AnswersPolicy": "AWS::SNS::TopicPolicy",
}
"""A changed logical id is another resource to CloudFormation.

It would make a second bucket of one name, and fail.
"""
FOREIGN_KEY = "arn:aws:kms:us-east-1:111122223333:key/0f8fad5b-d9cb-469f-a165-70867728950e"
SLACK = SlackSpec(workspace="T0123ABCDEF", channel="C0123ABCDEF")
NETWORK = NetworkSpec(
    vpc_id="vpc-0123456789abcdef0",
    subnet_ids=("subnet-0123456789abcdef0", "subnet-0123456789abcdef1"),
    security_group_ids=("sg-0123456789abcdef0",),
    route_table_ids=("rtb-0123456789abcdef0",),
    vpc_endpoints=True,
)


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


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"alarm_email": "team@example.com"},
        {"alarm_https": ["https://events.example.com/a"]},
        {"alarm_slack": SLACK},
        {"network": NETWORK},
        {"unreferenced_engine_days": 5},
    ],
)
def test_settings_of_an_environment_add_resources_and_rename_none(changes):
    found = {key: value["Type"] for key, value in foundation(**changes)["Resources"].items()}
    assert {key: found.get(key) for key in STATEFUL_IDS} == STATEFUL_IDS


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


ENDPOINT = "AWS::EC2::VPCEndpoint"


@pytest.mark.parametrize("network", [None, NETWORK.model_copy(update={"vpc_endpoints": False})])
def test_no_endpoint_is_made_unless_set(network):
    assert of_type(foundation(network=network), ENDPOINT) == {}
