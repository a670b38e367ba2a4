"""Where engines are built.

A CodeBuild project for each route, training jobs, the function that signs what they built, and the
state machine that starts them all; and the role of the jobs that measure what was built.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from constructs import Construct

from onboarding import names
from onboarding.environment_spec import EnvironmentSpec
from onboarding.platform import ServingPlatform
from onboarding.text_generation.quantizer_route import QUANTIZER_IMAGE
from stacks.access.policies import Statement, exact_role
from stacks.builds.machine import build_machine
from stacks.builds.projects import (
    QUANTIZER_ROUTE,
    BuildRouteProps,
    build_routes,
    log_group_name,
    machine_properties,
    project_properties,
    training_image,
)
from stacks.builds.roles import (
    job_statements,
    machine_statements,
    project_statements,
    recommender_statements,
)
from stacks.builds.signing import signer_resources
from stacks.resources import EnvironmentStack, add_resources
from stacks.suppressions import OUTPUT, with_reasons
from stacks.template import Properties, log_group


@dataclass(frozen=True, kw_only=True)
class BuildPrograms:
    """What builds one kind of thing: the commands of its builds, and its signer's whole code."""

    buildspec: str
    signer: str


BUILDER = "builders are images of this repository, built from pinned base images"
HISTORY = (
    "every execution's history stays for 90 days; log delivery needs eight actions on every log"
)
TIMES = "the machine waits for builds of minutes; its history has all times"
"""Why a rule of cdk-nag does not apply."""


class BuildsStack(EnvironmentStack):
    """Deploys what turns a source into a published engine, each part with an exact role."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        environment: EnvironmentSpec,
        platform: ServingPlatform,
        image_tags: Mapping[str, str],
        engines: BuildPrograms,
        checkpoints: BuildPrograms | None = None,
    ) -> None:
        """`checkpoints` is for environments with text generators alone."""
        super().__init__(
            scope, construct_id, environment, part="builds", description="engine builds"
        )
        self._environment = environment
        routes = dict.fromkeys(build_routes(environment, platform), engines.buildspec)
        images = [training_image(platform)]
        if checkpoints is not None:
            routes[QUANTIZER_ROUTE] = checkpoints.buildspec
            images.append(QUANTIZER_IMAGE)
        for route, buildspec in routes.items():
            self._add_project(
                route, names.image_uri(environment, route.image, image_tags[route.image]), buildspec
            )
        other = None if checkpoints is None else checkpoints.signer
        add_resources(self, signer_resources(environment, engines.signer, other))
        # Its own statement to pass it names it, and so does whoever starts a job.
        statements = recommender_statements(environment)
        name = names.recommender(environment)
        self._add_role("RecommenderRole", "sagemaker", statements, name)
        uris = {image: names.image_uri(environment, image, image_tags[image]) for image in images}
        self._add_machine([route.name for route in routes], uris)

    def _add_project(self, route: BuildRouteProps, image_uri: str, buildspec: str) -> None:
        environment, part = self._environment, route.construct_id
        project = project_properties(environment, route, image_uri=image_uri, buildspec=buildspec)
        self._add(
            f"{part}Logs", "Logs::LogGroup", log_group(log_group_name(environment, route.name))
        )
        self._add_role(f"{part}Role", "codebuild", project_statements(environment, route))
        self._add(
            f"{part}Project",
            "CodeBuild::Project",
            {**project, "ServiceRole": {"Fn::GetAtt": [f"{part}Role", "Arn"]}},
            CB4=OUTPUT,
            CB5=BUILDER,
        )

    def _add_machine(self, projects: Sequence[str], images: Mapping[str, str]) -> None:
        """`images`: URIs of training jobs' images by name, the one that compiles first."""
        environment, job_role = self._environment, {"Fn::GetAtt": ["JobRole", "Arn"]}
        signers = [names.signer(environment)]
        if QUANTIZER_IMAGE in images:
            signers.append(names.checkpoint_signer(environment))
        self._add_role("JobRole", "sagemaker", job_statements(environment, *images))
        statements = machine_statements(
            environment, projects=projects, job_role=job_role, signers=signers
        )
        self._add_role("MachineRole", "states", statements)
        definition = build_machine(
            environment,
            projects=projects,
            training_image=next(iter(images.values())),
            quantizer_image=images.get(QUANTIZER_IMAGE),
        )
        self._add(
            "Machine",
            "StepFunctions::StateMachine",
            {
                **machine_properties(environment, definition),
                "RoleArn": {"Fn::GetAtt": ["MachineRole", "Arn"]},
                "DefinitionSubstitutions": {"JobRole": job_role},
            },
            SF1=HISTORY,
            SF2=TIMES,
        )

    def _add_role(
        self,
        logical_id: str,
        service: str,
        statements: Sequence[Statement],
        name: str | None = None,
    ) -> None:
        properties = exact_role(
            self._environment, service=f"{service}.amazonaws.com", statements=statements
        )
        named = {} if name is None else {"RoleName": name}
        self._add(logical_id, "IAM::Role", {**named, **properties})

    def _add(
        self, logical_id: str, resource_type: str, properties: Properties, **reasons: str
    ) -> None:
        resource = {"Type": f"AWS::{resource_type}", "Properties": properties}
        add_resources(self, {logical_id: with_reasons(resource, **reasons)})
