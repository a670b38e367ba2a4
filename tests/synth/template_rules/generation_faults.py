"""Single faults of a text generator's endpoint: its component, its copies, its container."""

from __future__ import annotations

from functools import partial
from typing import Any

from tests.synth.template_rules.fault import add, at
from tests.synth.template_rules.stacks import CONFIG, MODEL, TARGET, Document, Stacks, one

CHAT, COMPONENT = "Endpoint-chat", "AWS::SageMaker::InferenceComponent"
fault = partial(add, "inference components", "generator")


def change(name: str, kind: str, *path: str, value: Any = None) -> None:
    """Add a fault that sets a property of a resource, or removes it where `value` is None."""

    def apply(s: Stacks) -> None:
        holder = at(one(s[CHAT], kind), *path[:-1])
        if value is None:
            del holder[path[-1]]
        else:
            holder[path[-1]] = value

    fault(name, apply)


def variant(s: Stacks) -> Document:
    """Return the endpoint's variant."""
    found: Document = one(s[CHAT], CONFIG)["ProductionVariants"][0]
    return found


RESOURCES = ("Specification", "ComputeResourceRequirements")
ROLLING = ("DeploymentConfig", "RollingUpdatePolicy")
change("component of no endpoint", COMPONENT, "EndpointName", value="cloud-chit")
change("component of no model", COMPONENT, "Specification", "ModelName", value="cloud-0123456789ab")
change("config without a role", CONFIG, "ExecutionRoleArn")
change(
    "more GPUs than the instance", COMPONENT, *RESOURCES, "NumberOfAcceleratorDevicesRequired",
    value=4,
)  # fmt: skip
change("no GPU", COMPONENT, *RESOURCES, "NumberOfAcceleratorDevicesRequired")
change("copies set by every update", COMPONENT, "RuntimeConfig", value={"CopyCount": 1})
change("no copy", COMPONENT, "RuntimeConfig", value={"CopyCount": 0})
change("zero without a way back", TARGET, "MinCapacity", value=0)
change("batch of all copies", COMPONENT, *ROLLING, "MaximumBatchSize",
       value={"Type": "CAPACITY_PERCENT", "Value": 100})  # fmt: skip
change("batch without a wait", COMPONENT, *ROLLING, "WaitIntervalInSeconds", value=0)
change("no rollback alarm", COMPONENT, "DeploymentConfig", "AutoRollbackConfiguration",
       value={"Alarms": []})  # fmt: skip
change("packages installed", MODEL, "PrimaryContainer", "Environment",
       "STANDARD_AUTO_INSTALL_REQ", value="true")  # fmt: skip
change("model without a name", MODEL, "PrimaryContainer", "Environment",
       "SM_VLLM_SERVED_MODEL_NAME")  # fmt: skip
change("prefix without a slash", MODEL, "PrimaryContainer", "ModelDataSource", "S3DataSource",
       "S3Uri", value="s3://roundhouse-cloud-111122223333-us-east-1/checkpoints/0")  # fmt: skip
fault("host of CUDA 12", lambda s: variant(s).update(
    InferenceAmiVersion="al2-ami-sagemaker-inference-gpu-3-1"))  # fmt: skip
fault("no instance at the least", lambda s: variant(s)["ManagedInstanceScaling"].update(
    MinInstanceCount=0))  # fmt: skip
fault("no room for an update", lambda s: variant(s)["ManagedInstanceScaling"].update(
    MaxInstanceCount=1))  # fmt: skip
fault("variant with a model", lambda s: variant(s).update(
    ModelName=one(s[CHAT], MODEL)["ModelName"]))  # fmt: skip


def without_dependency(s: Stacks) -> None:
    """Let the component be created before its endpoint."""
    for resource in s[CHAT]["Resources"].values():
        if resource["Type"] == COMPONENT:
            resource["DependsOn"].remove("Endpoint")


fault("component before its endpoint", without_dependency)
