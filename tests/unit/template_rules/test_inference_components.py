"""Each rule of inference components holds on our template, and refuses a change of it."""

from __future__ import annotations

import copy

import pytest

from template_rules.findings import own_findings
from template_rules.intrinsics import Stack
from template_rules.templates import Template
from tests.synth.generation_cases import SCALED, ZERO, generator, template

pytestmark = pytest.mark.unit

NEEDED = "InferenceComponent.Specification.ComputeResourceRequirements"
UPDATE = "InferenceComponent.DeploymentConfig"
VARIANT = "EndpointConfig.ProductionVariants.0"
VARIABLES = "Model.PrimaryContainer.Environment"
REFUSED = [
    ("E9131", "InferenceComponent.EndpointName", "cloud-chit"),
    ("E9131", "InferenceComponent.Specification.ModelName", "cloud-chat-0"),
    ("E9132", "EndpointConfig.ExecutionRoleArn", None),
    ("E9132", f"{VARIANT}.ModelName", "cloud-chat-5cb83ff84738"),
    ("E9133", f"{NEEDED}.NumberOfAcceleratorDevicesRequired", None),
    ("E9133", f"{NEEDED}.NumberOfAcceleratorDevicesRequired", 2),
    ("E9133", f"{VARIABLES}.SM_VLLM_TENSOR_PARALLEL_SIZE", "2"),
    ("E9134", "InferenceComponent.RuntimeConfig", {"CopyCount": 0}),
    ("E9134", "InferenceComponent.RuntimeConfig", {"CopyCount": 1}),
    ("E9135", "ScalableTarget.MinCapacity", 0),
    ("E9135", f"{VARIANT}.ManagedInstanceScaling.MinInstanceCount", 0),
    ("E9136", f"{VARIANT}.ManagedInstanceScaling.MaxInstanceCount", 4),
    ("E9137", f"{UPDATE}.RollingUpdatePolicy.MaximumBatchSize.Value", 51),
    ("E9137", f"{UPDATE}.RollingUpdatePolicy.WaitIntervalInSeconds", 0),
    ("E9137", f"{UPDATE}.AutoRollbackConfiguration.Alarms", []),
    ("E9137", f"{UPDATE}.AutoRollbackConfiguration.Alarms.0.AlarmName", "cloud-chit-errors"),
    ("E9138", f"{VARIABLES}.STANDARD_AUTO_INSTALL_REQ", None),
    ("E9138", f"{VARIABLES}.SM_VLLM_SERVED_MODEL_NAME", None),
]


@pytest.fixture(scope="module")
def sound():
    return template(generator(**SCALED))


def rules(document):
    stack = Stack(name="a", account="111122223333", region="us-east-1")
    found = own_findings(Template("a.json", document, stack=stack))
    return {finding.rule for finding in found if finding.rule.startswith("E913")}


@pytest.mark.parametrize("changes", [SCALED, ZERO])
def test_our_template_has_no_finding(changes):
    assert rules(template(generator(**changes))) == set()


@pytest.mark.parametrize(("rule", "path", "value"), REFUSED)
def test_refuses_change(sound, rule, path, value):
    document = copy.deepcopy(sound)
    name, *keys, last = path.split(".")
    holder = document["Resources"][name]["Properties"]
    for key in keys:
        holder = holder[int(key)] if isinstance(holder, list) else holder[key]
    holder.pop(last, None)
    if value is not None:
        holder[last] = value
    assert rule in rules(document)


def test_zero_copies_leave_no_instance_that_is_paid_for():
    document = template(generator(**ZERO))
    (variant,) = document["Resources"]["EndpointConfig"]["Properties"]["ProductionVariants"]
    variant["ManagedInstanceScaling"]["MinInstanceCount"] = 1
    assert rules(document) == {"E9135"}
    variant["ManagedInstanceScaling"]["MinInstanceCount"] = 0
    document["Resources"]["FromZeroAlarm"]["Properties"]["AlarmActions"] = []
    assert rules(document) == {"E9135"}
