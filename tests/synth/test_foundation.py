"""What survives: names that never change, and rules of how long what is not needed stays."""

from __future__ import annotations

import json
from typing import Any

import pytest
from aws_cdk import App
from aws_cdk.assertions import Template

from onboarding.environment_spec import EnvironmentSpec, NetworkSpec, SlackSpec
from stacks.foundation_stack import FoundationStack
from stacks.vpc_endpoints import INTERFACES
from tests.synth.assembly import SynthesizedStack, synthesized
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
RETAINED = (
    "AWS::KMS::Key",
    "AWS::KMS::Alias",
    "AWS::S3::Bucket",
    "AWS::S3::BucketPolicy",
    "AWS::ECR::Repository",
)
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


@pytest.fixture(scope="module")
def stack(tmp_path_factory) -> SynthesizedStack:
    return synthesized(tmp_path_factory.mktemp("dev"), environment("dev"), ())["Foundation"]


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


def test_slack_channel_gets_the_alarms_and_nobody_there_may_do_more_than_read():
    template = foundation(alarm_slack=SLACK)
    (channel,) = of_type(template, "AWS::Chatbot::SlackChannelConfiguration").values()
    properties = channel["Properties"]
    assert (properties["SlackWorkspaceId"], properties["SlackChannelId"]) == (
        "T0123ABCDEF",
        "C0123ABCDEF",
    )
    assert properties["SnsTopicArns"] == [{"Ref": "Alarms"}]
    # Without a guardrail of its own a channel has AdministratorAccess.
    assert properties["GuardrailPolicies"] == ["arn:aws:iam::aws:policy/CloudWatchReadOnlyAccess"]
    role_id, _ = properties["IamRoleArn"]["Fn::GetAtt"]
    role = template["Resources"][role_id]["Properties"]
    (trust,) = role["AssumeRolePolicyDocument"]["Statement"]
    assert trust["Principal"] == {"Service": "chatbot.amazonaws.com"}
    assert trust["Condition"] == {"StringEquals": {"aws:SourceAccount": "111122223333"}}
    actions = {
        action
        for policy in role["Policies"]
        for statement in policy["PolicyDocument"]["Statement"]
        for action in statement["Action"]
    }
    assert actions == {
        "cloudwatch:DescribeAlarms",
        "cloudwatch:GetMetricData",
        "cloudwatch:GetMetricWidgetImage",
    }


def test_stateful_resources_survive_their_stack(stack):
    for key, resource in stack.template["Resources"].items():
        if resource["Type"] in RETAINED:
            assert (resource["DeletionPolicy"], resource["UpdateReplacePolicy"]) == (
                "RetainExceptOnCreate",
                "Retain",
            ), key


def test_engines_and_networks_expire_under_the_mark_alone(stack):
    rules = bucket_rules(stack.template)
    mark = [{"Key": "roundhouse", "Value": "unreferenced"}]
    assert {id for id, rule in rules.items() if rule.get("TagFilters") == mark} == {
        "UnreferencedCheckpoints",
        "UnreferencedEngines",
        "UnreferencedNetworks",
    }
    reached = [
        rule for rule in rules.values() if "ExpirationInDays" in rule and "TagFilters" not in rule
    ]
    assert sorted(rule["Prefix"] for rule in reached) == [
        "answers/",
        "candidates/",
        "captures/",
        "jobs/",
        "requests/",
        "sources/",
    ]


def test_the_environment_says_how_long_a_marked_engine_stays():
    rules = bucket_rules(foundation(unreferenced_engine_days=7))
    assert (
        rules["UnreferencedEngines"]["ExpirationInDays"]
        == rules["UnreferencedNetworks"]["ExpirationInDays"]
        == rules["UnreferencedCheckpoints"]["ExpirationInDays"]
        == 7
    )
    assert rules["Sources"]["ExpirationInDays"] == 90


def test_what_users_sent_stays_days_and_its_versions_one_day(stack):
    rules = bucket_rules(stack.template)
    private = ("Captures", "Answers", "Requests")
    assert [rules[id]["ExpirationInDays"] for id in private] == [30, 7, 7]
    assert {rules[id]["NoncurrentVersionExpiration"]["NoncurrentDays"] for id in private} == {1}
    assert rules["Noncurrent"]["NoncurrentVersionExpiration"] == {"NoncurrentDays": 30}
    assert rules["Uploads"]["AbortIncompleteMultipartUpload"] == {"DaysAfterInitiation": 7}


def test_repositories_keep_the_newest_images_and_no_untagged_ones(stack):
    for repository in of_type(stack.template, "AWS::ECR::Repository").values():
        rules = json.loads(repository["Properties"]["LifecyclePolicy"]["LifecyclePolicyText"])[
            "rules"
        ]
        chosen = {rule["selection"]["tagStatus"]: rule["selection"] for rule in rules}
        assert chosen["untagged"]["countNumber"] == 7 and chosen["untagged"]["countUnit"] == "days"
        assert (chosen["tagged"]["countType"], chosen["tagged"]["countNumber"]) == (
            "imageCountMoreThan",
            50,
        )


def test_the_topic_is_encrypted_by_a_key_that_cloudwatch_may_use(stack):
    for topic in of_type(stack.template, "AWS::SNS::Topic").values():
        assert topic["Properties"]["KmsMasterKeyId"] == {"Fn::GetAtt": ["Key961B73FD", "Arn"]}
    key = stack.template["Resources"]["Key961B73FD"]
    statements = key["Properties"]["KeyPolicy"]["Statement"]
    (alarms,) = (
        statement
        for statement in statements
        if statement.get("Principal") == {"Service": "cloudwatch.amazonaws.com"}
    )
    assert alarms["Action"] == ["kms:Decrypt", "kms:GenerateDataKey*"]
    assert alarms["Condition"]["StringEquals"] == {"aws:SourceAccount": "111122223333"}


def test_the_signers_role_alone_signs_with_a_key_that_stays(stack):
    keys = of_type(stack.template, "AWS::KMS::Key")
    (key,) = (key for key in keys.values() if "KeySpec" in key["Properties"])
    assert key["DeletionPolicy"] == "RetainExceptOnCreate"
    properties = key["Properties"]
    assert (properties["KeySpec"], properties["KeyUsage"]) == ("ECC_NIST_P256", "SIGN_VERIFY")
    administer, sign = properties["KeyPolicy"]["Statement"]
    assert not any(
        word in verb for verb in administer["Action"] for word in ("Sign", "CreateGrant", "*")
    )
    assert (sign["Action"], sign["Condition"]) == (
        "kms:Sign",
        {
            "ArnEquals": {
                "aws:PrincipalArn": "arn:aws:iam::111122223333:role/roundhouse-dev-signer"
            },
            "StringEquals": {"kms:SigningAlgorithm": "ECDSA_SHA_256"},
        },
    )


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


def test_isolated_subnets_get_their_endpoints():
    found = {
        value["Properties"]["ServiceName"]: value["Properties"]
        for value in of_type(foundation(network=NETWORK), ENDPOINT).values()
    }
    assert set(found) == {
        f"com.amazonaws.us-east-1.{service}" for service in ("s3", *INTERFACES.values())
    }
    gateway = found["com.amazonaws.us-east-1.s3"]
    assert (gateway["VpcEndpointType"], gateway["RouteTableIds"]) == (
        "Gateway",
        ["rtb-0123456789abcdef0"],
    )
    artifacts, layers, agent = gateway["PolicyDocument"]["Statement"]
    assert artifacts["Resource"][0] == "arn:aws:s3:::roundhouse-dev-111122223333-us-east-1"
    assert layers["Resource"] == ["arn:aws:s3:::prod-us-east-1-starport-layer-bucket/*"]
    assert agent["Resource"] == [
        "arn:aws:s3:::codefactory-us-east-1-prod-default-build-agent-executor/*"
    ]
    assert layers["Action"] == agent["Action"] == ["s3:GetObject"]
    for service in INTERFACES.values():
        interface = found[f"com.amazonaws.us-east-1.{service}"]
        assert (interface["SubnetIds"], interface["SecurityGroupIds"]) == (
            list(NETWORK.subnet_ids),
            list(NETWORK.security_group_ids),
        )
        assert interface["PrivateDnsEnabled"] is True
        assert interface["PolicyDocument"]["Statement"][0]["Condition"] == {
            "StringEquals": {"aws:PrincipalAccount": "111122223333"}
        }


ENDPOINT = "AWS::EC2::VPCEndpoint"


@pytest.mark.parametrize("network", [None, NETWORK.model_copy(update={"vpc_endpoints": False})])
def test_no_endpoint_is_made_unless_set(network):
    assert of_type(foundation(network=network), ENDPOINT) == {}
