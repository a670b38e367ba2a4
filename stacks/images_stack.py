"""Where container images are built: one CodeBuild project with a Docker daemon, so that nobody's
own machine needs one.
"""

from __future__ import annotations

from aws_cdk import Environment, Stack
from constructs import Construct

from onboarding import names
from onboarding.environment_spec import EnvironmentSpec
from onboarding.platform import ServingPlatform
from stacks.access.exact_role import exact_role
from stacks.images.project import image_project, image_statements
from stacks.log_group import log_group
from stacks.resources import add_resources


class ImagesStack(Stack):
    """Deploys the project, its role, and its log group."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        environment: EnvironmentSpec,
        platform: ServingPlatform,
        buildspec: str,
    ) -> None:
        super().__init__(
            scope,
            construct_id,
            stack_name=names.stack_name(environment, "images"),
            env=Environment(account=environment.account, region=environment.region),
            description=f"Roundhouse: image builds of {environment.name}",
            tags={"roundhouse-environment": environment.name},
        )
        properties = image_project(environment, buildspec=buildspec)
        logs = log_group(properties["LogsConfig"]["CloudWatchLogs"]["GroupName"])
        role = exact_role(
            environment,
            service="codebuild.amazonaws.com",
            statements=image_statements(environment, platform),
        )
        project = {**properties, "ServiceRole": {"Fn::GetAtt": ["Role", "Arn"]}}
        add_resources(
            self,
            {
                "Logs": {"Type": "AWS::Logs::LogGroup", "Properties": logs},
                "Role": {"Type": "AWS::IAM::Role", "Properties": role},
                "Project": {"Type": "AWS::CodeBuild::Project", "Properties": project},
            },
        )
