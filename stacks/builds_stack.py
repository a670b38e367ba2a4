"""Where engines are built: one CodeBuild project a route, each with an exact role."""

from __future__ import annotations

from collections.abc import Mapping

from aws_cdk import CfnResource, Environment, Stack
from constructs import Construct

from onboarding import names
from onboarding.environment_spec import EnvironmentSpec
from onboarding.platform import ServingPlatform
from stacks.build_properties import ROUTES, BuildRouteProps, build_statements, project_properties
from stacks.exact_role import exact_role


class BuildsStack(Stack):
    """Deploys the projects that turn a source into a published engine; the GPU one only where the platform has TensorRT."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        environment: EnvironmentSpec,
        platform: ServingPlatform,
        image_tags: Mapping[str, str],
        buildspec: str,
    ) -> None:
        super().__init__(
            scope,
            construct_id,
            stack_name=names.stack_name(environment, "builds"),
            env=Environment(account=environment.account, region=environment.region),
            description=f"Roundhouse: engine builds of {environment.name}",
            tags={"roundhouse-environment": environment.name},
        )
        for route in ROUTES:
            if route.name == "cpu" or platform.tensorrt is not None:
                self._project(environment, route, names.image_uri(environment, route.image, image_tags[route.image]), buildspec)

    def _project(self, environment: EnvironmentSpec, route: BuildRouteProps, image_uri: str, buildspec: str) -> None:
        statements = build_statements(environment, route)
        role = CfnResource(
            self,
            f"{route.construct_id}Role",
            type="AWS::IAM::Role",
            properties=exact_role(environment, service="codebuild.amazonaws.com", statements=statements),
        )
        CfnResource(
            self,
            f"{route.construct_id}Project",
            type="AWS::CodeBuild::Project",
            properties={
                **project_properties(environment, route, image_uri=image_uri, buildspec=buildspec),
                "ServiceRole": role.get_att("Arn"),
            },
        )
