"""The roles of an environment's builders, which the account itself may take."""

from __future__ import annotations

import json
from collections.abc import Sequence

from onboarding.environment_spec import EnvironmentSpec
from onboarding.text_generation.quantizer_route import QUANTIZER_IMAGE
from roundhouse_cdk.builds.roles import job_statements, project_statements
from roundhouse_cdk.builds.routes import CPU, QUANTIZER_ROUTE
from roundhouse_cdk.statements import Statement
from tests.local_cloud.authorized_cloud import AuthorizedCloud, Credentials

PROJECT, JOB = "build-project", "training-job"
QUANTIZER_PROJECT, QUANTIZER_JOB = "quantizer-project", "quantizer-job"


def builder_statements(environment: EnvironmentSpec) -> dict[str, tuple[Statement, ...]]:
    """The statements of each kind of builder."""
    return {
        PROJECT: project_statements(environment, CPU),
        JOB: job_statements(environment, CPU.image),
        QUANTIZER_PROJECT: project_statements(environment, QUANTIZER_ROUTE),
        QUANTIZER_JOB: job_statements(environment, CPU.image, QUANTIZER_IMAGE),
    }


def add_builders(cloud: AuthorizedCloud, environment: EnvironmentSpec) -> None:
    """Make a role of each kind of builder."""
    for name, statements in builder_statements(environment).items():
        add_role(cloud, environment, name, statements)


def add_role(
    cloud: AuthorizedCloud, environment: EnvironmentSpec, name: str, statements: Sequence[Statement]
) -> None:
    """Make a role that the account itself may take."""
    iam = cloud.root("iam", environment.account)
    account = {"AWS": f"arn:aws:iam::{environment.account}:root"}
    trust = {"Effect": "Allow", "Principal": account, "Action": "sts:AssumeRole"}
    iam.create_role(RoleName=name, AssumeRolePolicyDocument=_document([trust]))
    iam.put_role_policy(
        RoleName=name, PolicyName="exact", PolicyDocument=_document(list(statements))
    )


def builder_credentials(
    cloud: AuthorizedCloud, environment: EnvironmentSpec, name: str
) -> Credentials:
    """Credentials of a builder's role."""
    arn = f"arn:aws:iam::{environment.account}:role/{name}"
    sts = cloud.root("sts", environment.account)
    reply = sts.assume_role(RoleArn=arn, RoleSessionName="test")
    credentials: Credentials = reply["Credentials"]
    return credentials


def _document(statements: list[Statement]) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": statements})
