"""The roles of an environment's builders, which the account itself may take."""

from __future__ import annotations

import json

from onboarding.environment_spec import EnvironmentSpec
from roundhouse_cdk.builds.roles import job_statements, project_statements
from roundhouse_cdk.builds.routes import CPU, QUANTIZER_ROUTE
from roundhouse_cdk.statements import Statement
from tests.local_cloud.authorized_cloud import AuthorizedCloud, Credentials

PROJECT, JOB, QUANTIZER_PROJECT = "build-project", "training-job", "quantizer-project"


def add_builders(cloud: AuthorizedCloud, environment: EnvironmentSpec) -> None:
    """Make a role of each kind of builder, which the account itself may take."""
    iam = cloud.root("iam", environment.account)
    account = {"AWS": f"arn:aws:iam::{environment.account}:root"}
    trust = {"Effect": "Allow", "Principal": account, "Action": "sts:AssumeRole"}
    statements = {
        PROJECT: project_statements(environment, CPU),
        JOB: job_statements(environment, CPU.image),
        QUANTIZER_PROJECT: project_statements(environment, QUANTIZER_ROUTE),
    }
    for name, own in statements.items():
        iam.create_role(RoleName=name, AssumeRolePolicyDocument=_document([trust]))
        iam.put_role_policy(RoleName=name, PolicyName="exact", PolicyDocument=_document(list(own)))


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
