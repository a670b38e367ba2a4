"""Single faults of roles: a permission that is missing or that lies elsewhere."""

from __future__ import annotations

from functools import partial
from typing import Any

from tests.synth.template_rules.fault import ELSEWHERE, EMBEDDER, EXAMPLE, TEXT, add
from tests.synth.template_rules.stacks import ROLE, Document, Stacks, deny, one, replace, statements

fault_dev = partial(add, "roles", "dev")
fault_everything = partial(add, "roles", "everything")
fault = partial(add, "roles")


def lacks(
    name: str, assembly: str, stack: str, action: str, role: str = "Role", text: str = ""
) -> None:
    """Add a fault that takes an action from a role."""
    fault(assembly, name, lambda s: deny(s[stack], action, role, text))


def states_elsewhere(
    name: str, assembly: str, stack: str, old: str, new: str, role: str = "Role", text: str = ""
) -> None:
    """Add a fault that changes a text in a role's statements."""
    fault(assembly, name, lambda s: replace(s[stack], old, new, role, text))


lacks("endpoint cannot decrypt", "dev", EMBEDDER, "kms:Decrypt")
lacks("endpoint has no registry token", "dev", EMBEDDER, "ecr:GetAuthorizationToken")
lacks("endpoint cannot pull", "dev", EMBEDDER, "ecr:BatchGetImage", "")
lacks("endpoint cannot write logs", "dev", EMBEDDER, "logs:PutLogEvents")
lacks("endpoint cannot create its log", "dev", EMBEDDER, "logs:CreateLogStream")
lacks("endpoint cannot look at alarms", "dev", EMBEDDER, "cloudwatch:DescribeAlarms")
lacks("endpoint cannot publish metrics", "dev", EMBEDDER, "cloudwatch:PutMetricData")
lacks("endpoint cannot read archives", "dev", TEXT, "s3:GetObject", "")
lacks("endpoint cannot list the bucket", "dev", TEXT, "s3:ListBucket", "")
lacks("endpoint cannot capture", "everything", EXAMPLE, "s3:PutObject")
lacks(
    "capture without a data key", "everything", EXAMPLE, "kms:GenerateDataKey", text="s3.us-east-1"
)
lacks("endpoint without interfaces", "everything", EXAMPLE, "ec2:CreateNetworkInterface")
lacks(
    "endpoint cannot release interfaces",
    "everything",
    EXAMPLE,
    "ec2:DeleteNetworkInterfacePermission",
)
lacks("endpoint cannot describe subnets", "everything", EXAMPLE, "ec2:DescribeSubnets")
lacks("no answers", "queue", EXAMPLE, "s3:PutObject")
lacks("no requests", "queue", EXAMPLE, "s3:GetObject", text="requests/")
lacks("answers are not announced", "queue", EXAMPLE, "sns:Publish")
lacks("announcements without a key", "queue", EXAMPLE, "kms:GenerateDataKey", text="sns.us-east-1")
lacks("volume without a grant", "volume", EXAMPLE, "kms:CreateGrant")
lacks("build cannot decrypt", "everything", "Builds", "kms:Decrypt", "CpuRole")
lacks("build has no registry token", "everything", "Builds", "ecr:GetAuthorizationToken", "GpuRole")
lacks("build cannot write logs", "everything", "Builds", "logs:PutLogEvents", "CpuRole")
lacks("build cannot publish", "everything", "Builds", "s3:PutObject", "GpuRole")
lacks("build cannot read sources", "everything", "Builds", "s3:GetObject", "CpuRole")
lacks("build without interfaces", "everything", "Builds", "ec2:CreateNetworkInterface", "CpuRole")
lacks(
    "training job cannot write its log", "everything", "Builds", "logs:CreateLogStream", "JobRole"
)
lacks("training job cannot pull", "everything", "Builds", "ecr:GetDownloadUrlForLayer", "JobRole")
lacks("images cannot be pushed", "everything", "Images", "ecr:PutImage")
lacks(
    "state machine cannot start itself",
    "everything",
    "Builds",
    "states:StartExecution",
    "MachineRole",
)
lacks(
    "state machine cannot start builds",
    "everything",
    "Builds",
    "codebuild:StartBuild",
    "MachineRole",
)
lacks(
    "state machine cannot follow jobs",
    "everything",
    "Builds",
    "sagemaker:DescribeTrainingJob",
    "MachineRole",
)
lacks("state machine cannot pass the role", "everything", "Builds", "iam:PassRole", "MachineRole")
lacks("state machine cannot tell", "everything", "Builds", "sns:Publish", "MachineRole")
lacks(
    "state machine cannot use the topic's key",
    "everything",
    "Builds",
    "kms:GenerateDataKey",
    "MachineRole",
)
states_elsewhere("ViaService of another region", "dev", EMBEDDER, "s3.us-east-1", "s3.eu-west-1")
states_elsewhere(
    "key of another alias", "dev", EMBEDDER, "alias/roundhouse-dev", "alias/roundhouse-prod"
)
states_elsewhere(
    "logs of another endpoint",
    "dev",
    EMBEDDER,
    "Endpoints/dev-sentence-embedder",
    "Endpoints/dev-other",
)
states_elsewhere(
    "alarms of another endpoint", "dev", EMBEDDER, "alarm:dev-sentence-embedder", "alarm:dev-other"
)
states_elsewhere(
    "captures under another prefix",
    "everything",
    EXAMPLE,
    "/captures/cloud-example/",
    "/captures/another/",
)
states_elsewhere(
    "answers under another prefix", "queue", EXAMPLE, "/answers/cloud-example/", "/answers/another/"
)
states_elsewhere(
    "builds of another prefix", "everything", "Builds", "/networks/", "/graphs/", "CpuRole"
)
states_elsewhere(
    "role passed to another service",
    "everything",
    "Builds",
    "sagemaker.amazonaws.com",
    "ecs.amazonaws.com",
    "MachineRole",
)
states_elsewhere(
    "one project is left out",
    "everything",
    "Builds",
    "project/roundhouse-cloud-build-gpu",
    "project/roundhouse-cloud-build-tpu",
    "MachineRole",
)


def trust(s: Stacks, stack: str, **new: Any) -> None:
    """Change the trust of a stack's first role."""
    one(s[stack], ROLE)["AssumeRolePolicyDocument"]["Statement"][0].update(new)


fault_dev("SourceAccount of elsewhere", lambda s: trust(s, EMBEDDER, Condition=ELSEWHERE))
fault_everything(
    "build's SourceAccount of elsewhere", lambda s: trust(s, "Builds", Condition=ELSEWHERE)
)
fault_dev(
    "trust in another service",
    lambda s: trust(s, EMBEDDER, Principal={"Service": "ec2.amazonaws.com"}),
)


def passing(s: Stacks) -> Document:
    """Return the statement by which the state machine passes a role."""
    found = (item for _, item in statements(s["Builds"]) if item.get("Sid") == "PassRole")
    return next(found)


fault_dev("role passed to any service", lambda s: passing(s).pop("Condition"))
fault_dev(
    "any role passed", lambda s: passing(s).update(Resource=["arn:aws:iam::111122223333:role/*"])
)
