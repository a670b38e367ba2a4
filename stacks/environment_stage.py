"""One environment: what all endpoints share, a stack for each of them, observability."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import yaml
from aws_cdk import Environment, Stack, Stage
from aws_cdk import aws_codebuild as codebuild
from constructs import Construct

from onboarding import names
from onboarding.deployment import Deployment
from onboarding.environment_spec import EnvironmentSpec, promotion_neighbours
from onboarding.platform import serving_platforms
from onboarding.text_generation.generation_deployment import GenerationDeployment
from onboarding.workload import Endpoint
from roundhouse_cdk.artifact_store import (
    ArtifactStore,
    ArtifactStoreProps,
    EngineImages,
    EngineImagesProps,
    SlackAlarms,
    SlackAlarmsProps,
)
from roundhouse_cdk.build_project import ImageBuilds, ImageBuildsProps
from roundhouse_cdk.endpoint_dashboard import (
    EndpointDashboard,
    EndpointDashboardProps,
    WatchedEndpoint,
)
from roundhouse_cdk.engine_pipeline import BuildPrograms, EnginePipeline, EnginePipelineProps
from roundhouse_cdk.pipeline_roles import BOOTSTRAP_QUALIFIER, PipelineRoles, PipelineRolesProps
from roundhouse_cdk.vpc_endpoints import VpcEndpoints, VpcEndpointsProps
from stacks.alarms import endpoint_alarms
from stacks.endpoint_stack import EndpointStack
from stacks.environment_stack import OWN, EnvironmentStack, keep_ids, keep_logical_ids
from stacks.images import (
    DOCKERFILES,
    base_image,
    base_repositories,
    image_tags,
    image_uris,
    read_image_files,
)


def function_program(base: Path, own: Path) -> str:
    """Return a function's whole code: two files as one, without the imports of each other."""
    first, second = (path.read_text(encoding="utf-8") for path in (base, own))
    lines = second.splitlines(keepends=True)
    for node in ast.parse(second).body:
        left_out = ("__future__", "engine_build.signing")
        if isinstance(node, ast.ImportFrom) and node.module in left_out:
            for number in range(node.lineno - 1, node.end_lineno or node.lineno):
                lines[number] = ""
    return f"{first}\n\n{''.join(lines)}"


class FoundationStack(EnvironmentStack):
    """Deploys first, changes rarely, and keeps its contents when it is deleted.

    `receivers` are the environments whose workflows promote from this one; those of other
    accounts may read them.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        environment: EnvironmentSpec,
        receivers: Sequence[EnvironmentSpec] = (),
    ) -> None:
        super().__init__(
            scope,
            construct_id,
            environment,
            part="foundation",
            description="foundation",
            is_protected=True,
        )
        props = ArtifactStoreProps(environment=environment, receivers=receivers)
        store = self.store = ArtifactStore(self, OWN, props=props)
        images = EngineImagesProps(environment=environment, images=tuple(DOCKERFILES))
        self.images = EngineImages(store, OWN, props=images)
        l1 = ("Alarm", "Answers")
        topics = [item for item in store.node.children if item.node.id.startswith(l1)]
        keep_logical_ids(store, *topics)
        if environment.alarm_slack is not None:
            slack = SlackAlarmsProps(
                environment=environment, slack=environment.alarm_slack, topic=store.alarm_topic
            )
            keep_logical_ids(SlackAlarms(self, "SlackAlarms", props=slack))
        network = environment.network
        if network is not None and network.vpc_endpoints:
            endpoints = VpcEndpointsProps(environment=environment, network=network)
            keep_logical_ids(VpcEndpoints(self, "VpcEndpoints", props=endpoints))


@dataclass(frozen=True, kw_only=True)
class Sources:
    """What synth takes from the code.

    Files of each image, commands of builds, and the programs of the signers.
    """

    image_files: Mapping[str, Mapping[str, bytes]]
    images_buildspec: codebuild.BuildSpec
    engines: BuildPrograms
    checkpoints: BuildPrograms


def read_sources(repository: Path) -> Sources:
    """Read what synth takes from the repository's code."""
    builds = repository / "engine_build"
    return Sources(
        image_files=read_image_files(repository),
        images_buildspec=_buildspec(builds / "image" / "buildspec.yml"),
        engines=_programs(builds, "buildspec.yml", "signer.py"),
        checkpoints=_programs(builds, "checkpoint_buildspec.yml", "checkpoint_signer.py"),
    )


def _buildspec(path: Path) -> codebuild.BuildSpec:
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    return codebuild.BuildSpec.from_object_to_yaml(content)


def _programs(builds: Path, buildspec: str, signer: str) -> BuildPrograms:
    return BuildPrograms(
        buildspec=_buildspec(builds / buildspec),
        signer=function_program(builds / "signing.py", builds / signer),
    )


class ObservabilityStack(EnvironmentStack):
    """Deploys the environment's dashboard."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        environment: EnvironmentSpec,
        endpoints: Iterable[Endpoint],
    ) -> None:
        super().__init__(
            scope, construct_id, environment, part="observability", description="dashboard"
        )
        name = f"roundhouse-{environment.name}"
        watched = [_dashboard_endpoint(endpoint) for endpoint in endpoints]
        props = EndpointDashboardProps(name=name, endpoints=watched)
        keep_ids({"Dashboard": EndpointDashboard(self, "Overview", props=props).dashboard})


def _dashboard_endpoint(endpoint: Endpoint) -> WatchedEndpoint:
    name = names.endpoint_name(endpoint.environment, endpoint.name)
    alarms = endpoint_alarms(endpoint)
    if isinstance(endpoint, GenerationDeployment):
        return WatchedEndpoint(name=name, alarms=alarms, is_component=True, is_generator=True)
    return WatchedEndpoint(
        name=name,
        alarms=alarms,
        is_queue=endpoint.endpoint.asynchronous is not None,
        is_multi_model=endpoint.multi_model,
        is_component=endpoint.is_component,
        has_variants=len(endpoint.variants) > 1,
    )


class EnvironmentStage(Stage):
    """The stacks of one environment.

    `<environment>/Foundation`, `/Images`, `/Builds`, `/Access`, `/Endpoint-<name>`,
    `/Observability`. Of only some endpoints, where `is_whole` is false: their stacks and the
    foundation that they depend on. `environments` are those of the tree, by name: what they promote
    to each other, they may read. `construct_id` None: the environment's name.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str | None = None,
        *,
        environment: EnvironmentSpec,
        deployments: Sequence[Deployment],
        generators: Sequence[GenerationDeployment] = (),
        sources: Sources,
        is_whole: bool = True,
        environments: Mapping[str, EnvironmentSpec] = MappingProxyType({}),
    ) -> None:
        env = Environment(account=environment.account, region=environment.region)
        super().__init__(scope, construct_id or environment.name, env=env)
        # The command line warns of this key in cdk.json, which is CloudFormation's paths alone.
        self.node.set_context("aws:cdk:disable-logicalId-metadata", True)
        platform = serving_platforms()[environment.platform]
        tags = image_tags(sources.image_files, base_image(platform))
        source, receivers = promotion_neighbours(environment, environments)
        foundation = FoundationStack(
            self, "Foundation", environment=environment, receivers=receivers
        )
        dependents: list[Stack] = []
        if is_whole:
            images = self._stack("Images", environment, "image builds")
            image_props = ImageBuildsProps(
                environment=environment,
                images=tuple(DOCKERFILES),
                base_repositories=base_repositories(platform),
                buildspec=sources.images_buildspec,
            )
            keep_logical_ids(ImageBuilds(images, OWN, props=image_props))
            builds = self._stack("Builds", environment, "engine builds")
            pipeline_props = EnginePipelineProps(
                environment=environment,
                platform=platform,
                image_tags=tags,
                engines=sources.engines,
                checkpoints=sources.checkpoints if generators else None,
            )
            keep_logical_ids(EnginePipeline(builds, OWN, props=pipeline_props))
            dependents += [images, builds]
            if environment.forge is not None:
                access = self._stack("Access", environment, "roles of the workflows")
                roles_props = PipelineRolesProps(
                    environment=environment,
                    forge=environment.forge,
                    qualifier=access.synthesizer.bootstrap_qualifier or BOOTSTRAP_QUALIFIER,
                    source=source,
                    receivers=receivers,
                )
                keep_logical_ids(PipelineRoles(access, OWN, props=roles_props))
        uris = image_uris(environment, tags)
        endpoints: list[Endpoint] = [*deployments, *generators]
        dependents += [
            EndpointStack(self, f"Endpoint-{endpoint.name}", deployment=endpoint, image_uris=uris)
            for endpoint in endpoints
        ]
        for stack in dependents:
            stack.add_stack_dependency(foundation)
        if is_whole and endpoints:
            ObservabilityStack(self, "Observability", environment=environment, endpoints=endpoints)

    def _stack(self, name: str, environment: EnvironmentSpec, description: str) -> EnvironmentStack:
        """Return an empty stack of the environment, which a construct of ours fills."""
        part = name.lower()
        return EnvironmentStack(self, name, environment, part=part, description=description)

    def refusals(self) -> list[str]:
        """Return why a stack of the stage cannot be deployed, such as an engine not yet built.

        `cdk synth` says it of stacks beside a stage alone.
        """
        return [
            f"{stack.node.path} cannot be deployed: {entry.data}"
            for stack in self.node.children
            for entry in stack.node.metadata
            if entry.type == "aws:cdk:error"
        ]
