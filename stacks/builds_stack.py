"""Where engines are built: a CodeBuild project for each route, training jobs, and the state machine
that starts them all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aws_cdk import CfnResource, Environment, Stack
from constructs import Construct

from onboarding import names
from onboarding.environment_spec import EnvironmentSpec
from onboarding.platform import ServingPlatform
from stacks.access.exact_role import exact_role
from stacks.access.statements import Statement
from stacks.builds.machine import build_machine
from stacks.builds.properties import (
    BuildRouteProps,
    build_routes,
    log_group_name,
    machine_properties,
    project_properties,
    training_image,
)
from stacks.builds.roles import job_statements, machine_statements, project_statements
from stacks.log_group import log_group


class BuildsStack(Stack):
    """Deploys what turns a source into a published engine, each part with an exact role."""

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
        self._environment = environment
        routes = build_routes(environment, platform)
        for route in routes:
            self._project(
                route, names.image_uri(environment, route.image, image_tags[route.image]), buildspec
            )
        image = training_image(platform)
        self._machine(
            [route.name for route in routes],
            image,
            names.image_uri(environment, image, image_tags[image]),
        )

    def _project(self, route: BuildRouteProps, image_uri: str, buildspec: str) -> None:
        environment = self._environment
        logs = log_group(log_group_name(environment, route))
        CfnResource(self, f"{route.construct_id}Logs", type="AWS::Logs::LogGroup", properties=logs)
        role = self._role(
            f"{route.construct_id}Role", "codebuild", project_statements(environment, route)
        )
        properties = project_properties(
            environment, route, image_uri=image_uri, buildspec=buildspec
        )
        CfnResource(
            self,
            f"{route.construct_id}Project",
            type="AWS::CodeBuild::Project",
            properties={**properties, "ServiceRole": role.get_att("Arn")},
        )

    def _machine(self, projects: Sequence[str], image: str, image_uri: str) -> None:
        environment = self._environment
        job_role = self._role("JobRole", "sagemaker", job_statements(environment, image))
        statements = machine_statements(
            environment, projects=projects, job_role={"Fn::GetAtt": ["JobRole", "Arn"]}
        )
        role = self._role("MachineRole", "states", statements)
        definition = build_machine(environment, projects=projects, training_image=image_uri)
        CfnResource(
            self,
            "Machine",
            type="AWS::StepFunctions::StateMachine",
            properties={
                **machine_properties(environment, definition),
                "RoleArn": role.get_att("Arn"),
                "DefinitionSubstitutions": {"JobRole": job_role.get_att("Arn")},
            },
        )

    def _role(
        self, construct_id: str, service: str, statements: Sequence[Statement]
    ) -> CfnResource:
        properties = exact_role(
            self._environment, service=f"{service}.amazonaws.com", statements=statements
        )
        return CfnResource(self, construct_id, type="AWS::IAM::Role", properties=properties)
