"""Further single faults of our own environment, of the kind that only a deployment, or an outage,
would tell.
"""

from __future__ import annotations

import copy
import json

import pytest

from template_rules.checking import checked
from template_rules.stack_facts import StackFacts
from template_rules.template import Template
from tests.synth.template_rules.mutations import properties, resource

pytestmark = pytest.mark.synth

STACK = StackFacts(name="dev", account="111122223333", region="us-east-1")
BUCKET, KEY, TOPIC_POLICY = "AWS::S3::Bucket", "AWS::KMS::Key", "AWS::SNS::TopicPolicy"
CONFIG, ENDPOINT, MODEL, MACHINE = (
    *(f"AWS::SageMaker::{name}" for name in ("EndpointConfig", "Endpoint", "Model")),
    "AWS::StepFunctions::StateMachine",
)


def latency(document):
    alarms = [
        each["Properties"]
        for each in document["Resources"].values()
        if each["Type"] == "AWS::CloudWatch::Alarm"
    ]
    return next(each for each in alarms if each.get("MetricName") == "ModelLatency")


def slo(document):
    """The alarm on the SLO, which is metric math."""
    return next(
        each["Properties"]
        for each in document["Resources"].values()
        if each["Type"] == "AWS::CloudWatch::Alarm"
        and str(each["Properties"].get("AlarmName")).endswith("-latency")
    )


def in_milliseconds(alarm):
    alarm["Threshold"] /= 1000


def task(document, **fields):
    """Changes the first task of the state machine."""
    machine = properties(document, MACHINE)
    definition = json.loads(machine["DefinitionString"])
    next(each for each in definition["States"].values() if each["Type"] == "Task").update(fields)
    machine["DefinitionString"] = json.dumps(definition)


def role_of(document, resource_type):
    (name, _) = properties(document, resource_type)["ExecutionRoleArn"]["Fn::GetAtt"]
    return document["Resources"][name]["Properties"]


def rules_of(bucket):
    return bucket["LifecycleConfiguration"]["Rules"]


def rule_of_engines(document):
    return next(
        each for each in rules_of(properties(document, BUCKET)) if each.get("Prefix") == "engines/"
    )


FAULTS = {
    "lifecycle deletes locked engines": ("RH301", lambda d: rule_of_engines(d).pop("TagFilters")),
    "lifecycle archives locked engines": (
        "RH301",
        lambda d: rules_of(properties(d, BUCKET)).append(
            {
                "Status": "Enabled",
                "Transitions": [{"StorageClass": "GLACIER", "TransitionInDays": 9}],
            }
        ),
    ),
    "two lifecycle rules of one id": (
        "RH300",
        lambda d: [each.update(Id="Same") for each in rules_of(properties(d, BUCKET))],
    ),
    "key nobody manages": ("RH247", lambda d: properties(d, KEY)["KeyPolicy"]["Statement"].pop(0)),
    "key that alarms may not use": (
        "RH249",
        lambda d: properties(d, KEY)["KeyPolicy"]["Statement"].pop(1),
    ),
    "policy of another topic": (
        "RH248",
        lambda d: properties(d, TOPIC_POLICY)["PolicyDocument"]["Statement"][0].update(
            Resource="arn:aws:sns:us-east-1:1:a"
        ),
    ),
    "model's archive that its role may not read": (
        "RH114",
        lambda d: properties(d, MODEL)["PrimaryContainer"].update(
            ModelDataUrl="s3://roundhouse-dev-111122223333-us-east-1/engines/another/model.tar.gz"
        ),
    ),
    "role that SageMaker may not assume": (
        "RH246",
        lambda d: role_of(d, MODEL)["AssumeRolePolicyDocument"]["Statement"][0].update(
            Principal={"Service": "lambda.amazonaws.com"}
        ),
    ),
    "image of another region": (
        "RH112",
        lambda d: properties(d, MODEL)["PrimaryContainer"].update(
            Image="111122223333.dkr.ecr.eu-west-1.amazonaws.com/a:1"
        ),
    ),
    "role of another account": (
        "RH041",
        lambda d: properties(d, MODEL).update(ExecutionRoleArn="arn:aws:iam::999922223333:role/a"),
    ),
    "SLO in milliseconds": ("RH194", lambda d: in_milliseconds(slo(d))),
    "latency in milliseconds": ("RH186", lambda d: latency(d).update(Unit="Milliseconds")),
    "alarm that tells another region": (
        "RH199",
        lambda d: latency(d).update(AlarmActions=["arn:aws:sns:eu-west-1:111122223333:a"]),
    ),
    "topic of another partition": (
        "RH040",
        lambda d: latency(d).update(AlarmActions=["arn:aws-cn:sns:us-east-1:111122223333:a"]),
    ),
    "rollout without time": (
        "RH152",
        lambda d: properties(d, ENDPOINT)["DeploymentConfig"]["BlueGreenUpdatePolicy"].update(
            MaximumExecutionTimeoutInSeconds=600, TerminationWaitInSeconds=500
        ),
    ),
    "update that resets the count": (
        "RH153",
        lambda d: properties(d, ENDPOINT).update(RetainAllVariantProperties=False),
    ),
    "serverless memory": (
        "RH131",
        lambda d: properties(d, CONFIG)["ProductionVariants"][0].update(
            ServerlessConfig={"MaxConcurrency": 5, "MemorySizeInMB": 1500}
        ),
    ),
    "task that is no call": (
        "RH268",
        lambda d: task(d, Resource="arn:aws:states:::codebuild:startBuilds.sync"),
    ),
    "misspelt field of a state": ("RH269", lambda d: task(d, ResultsPath="$.a")),
    "misspelt attribute of a resource": (
        "RH017",
        lambda d: resource(d, ENDPOINT).update(DependOn="x"),
    ),
    "misspelt function": (
        "RH025",
        lambda d: properties(d, MODEL).update(
            ExecutionRoleArn={"Fn::GetAt": ["ImagesRole", "Arn"]}
        ),
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_refuses_each_fault(fault, document):
    rule, change = FAULTS[fault]
    changed = copy.deepcopy(document)
    change(changed)
    before = {each.rule for each in checked([Template("base", document, stack=STACK)]).findings}
    after = {each.rule for each in checked([Template("base", changed, stack=STACK)]).findings}
    assert rule in after - before
