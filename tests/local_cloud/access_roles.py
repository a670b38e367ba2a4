"""Two environments of two accounts with their foundation and access stacks, policies evaluated."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from onboarding import names
from onboarding.environment_spec import EnvironmentSpec, GithubSpec
from tests.local_cloud.authorized_cloud import AuthorizedCloud, github_token
from tests.synth.assembly import synthesized

GITHUB = GithubSpec(repository="acme/models", repository_id=456789, owner_id=123456)
COMMON = {"region": "us-east-1", "platform": "triton-26.05", "github": GITHUB}
STAGING = EnvironmentSpec(name="staging", account="111122223333", **COMMON)
PROD = EnvironmentSpec(name="prod", account="444455556666", promotes_from="staging", **COMMON)
ENVIRONMENTS = {item.name: item for item in (STAGING, PROD)}
CDK_ROLES = ("cfn-exec", "deploy", "file-publishing", "image-publishing", "lookup")
STORED = ("engines/key/model.tar.gz", "networks/key/model.onnx", "sources/there.zip",
          "candidates/key/there/model.tar.gz", "checkpoints/key/config.json",
          "adapters/key/config.json")  # fmt: skip


def deploy(cloud: AuthorizedCloud, folder: Path, environment: EnvironmentSpec) -> None:
    """Deploy an environment's foundation and access stacks as the account's root.

    And what is beside them: the roles of `cdk bootstrap`, and some objects.
    """
    stacks = synthesized(folder, environment, (), environments=ENVIRONMENTS)
    formation = cloud.root("cloudformation", environment.account)
    for part in ("Foundation", "Access"):
        name = names.stack_name(environment, part.lower())
        body = json.dumps({"Resources": stacks[part].template["Resources"]})
        formation.create_stack(
            StackName=name, TemplateBody=body, Capabilities=["CAPABILITY_NAMED_IAM"]
        )
        waiter = formation.get_waiter("stack_create_complete")
        waiter.wait(StackName=name, WaiterConfig={"Delay": 1})
    iam, s3 = (cloud.root(service, environment.account) for service in ("iam", "s3"))
    root = {"Effect": "Allow", "Action": "sts:AssumeRole"}
    trust = {**root, "Principal": {"AWS": f"arn:aws:iam::{environment.account}:root"}}
    for kind in CDK_ROLES:
        iam.create_role(
            RoleName=cdk_role(environment, kind).rpartition("/")[2],
            AssumeRolePolicyDocument=json.dumps({"Version": "2012-10-17", "Statement": [trust]}),
        )
    for key in STORED:
        s3.put_object(Bucket=names.artifact_bucket(environment), Key=key, Body=b"stored")


def cdk_role(environment: EnvironmentSpec, kind: str) -> str:
    """The ARN of one of the roles of `cdk bootstrap`."""
    place = f"{environment.account}-{environment.region}"
    return f"arn:aws:iam::{environment.account}:role/cdk-hnb659fds-{kind}-role-{place}"


def token(context: str, ref: str, **claims: Any) -> str:
    """A token of our repository's workflow as it is on main, unless `claims` say otherwise."""
    ours: dict[str, Any] = {
        "sub": f"repo:{GITHUB.repository}:{context}",
        "ref": ref,
        "repository": GITHUB.repository,
        "repository_id": str(GITHUB.repository_id),
        "job_workflow_ref": f"{GITHUB.repository}/{names.RUN_WORKFLOW}@refs/heads/main",
    }
    return github_token(**{**ours, **claims})
