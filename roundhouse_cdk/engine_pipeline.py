"""What turns a source into a signed engine: projects, training jobs, signers, one state machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from aws_cdk import Duration, Size, Tags
from aws_cdk import aws_codebuild as codebuild
from aws_cdk import aws_ecr as ecr
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from onboarding import arns, names
from onboarding.environment_spec import EnvironmentSpec
from onboarding.platform import ServingPlatform
from onboarding.text_generation.checkpoint_key import QUANTIZER_IMAGE
from roundhouse_cdk.build_project import (
    QUANTIZER_ROUTE,
    BuildProject,
    BuildRoute,
    add_log_group,
    build_routes,
    training_image,
)
from roundhouse_cdk.build_roles import (
    job_statements,
    machine_statements,
    project_statements,
    recommender_statements,
    signer_statements,
)
from roundhouse_cdk.build_states import BuildStates
from roundhouse_cdk.exact_role import ExactRole, add_metadata
from roundhouse_cdk.vpc_endpoints import Network

QUEUED_MINUTES = 480
SIGNER_SECONDS = 900
"""The longest that Lambda knows; packing 5 GB, the most that one PUT takes, was 300 s here."""
SIGNER_DISK_MIB = 10_240
"""An archive before and after it is signed, each of 5 GB at most."""
SIGNER_MEMORY_MIB = 1_769
"""What comes with one whole CPU; compression knows no second (Lambda developer guide, "Memory")."""
BUILDER = "builders are images of this repository, built from pinned base images"
HISTORY = (
    "every execution's history stays for 90 days; log delivery needs eight actions on every log"
)
TIMES = "the machine waits for builds of minutes; its history has all times"
"""Why a rule of cdk-nag does not apply."""


@dataclass(frozen=True, kw_only=True)
class BuildPrograms:
    """What builds one kind of thing: the commands of its builds, and its signer's whole code."""

    buildspec: codebuild.BuildSpec
    signer: str


@dataclass(frozen=True, kw_only=True)
class EnginePipelineProps:
    """`image_tags` has the tag of every builder's image; `checkpoints` is for text generators."""

    environment: EnvironmentSpec
    platform: ServingPlatform
    image_tags: Mapping[str, str]
    engines: BuildPrograms
    checkpoints: BuildPrograms | None = None


class EnginePipeline(Construct):
    """Deploys what builds engines, each part with an exact role.

    `builds` has a CodeBuild project for each route; `job_role` is that of training jobs,
    `recommender_role` that of the jobs that measure what was built; `signers` publish what
    `state_machine` had built. Raises ValueError for an image without a tag.
    """

    def __init__(self, scope: Construct, construct_id: str, *, props: EnginePipelineProps) -> None:
        super().__init__(scope, construct_id)
        self._props = props
        environment = self._environment = props.environment
        routes = dict.fromkeys(build_routes(environment, props.platform), props.engines.buildspec)
        images = [training_image(props.platform)]
        signers = {"Signer": (names.signer(environment), "engines", props.engines.signer)}
        if props.checkpoints is not None:
            routes[QUANTIZER_ROUTE] = props.checkpoints.buildspec
            images.append(QUANTIZER_IMAGE)
            name = names.checkpoint_signer(environment)
            signers["CheckpointSigner"] = (name, "checkpoints", props.checkpoints.signer)
        network = environment.network
        self._network = None if network is None else Network(self, "Network", network=network)
        self.builds = {
            route.name: self._build_project(route, buildspec) for route, buildspec in routes.items()
        }
        role = self._role = partial(ExactRole, self, environment=environment)
        has_checkpoints = props.checkpoints is not None
        # The key's policy knows the role by its name, before there is one.
        self.signer_role = role(
            "SignerRole",
            trusts="lambda",
            statements=signer_statements(environment, has_checkpoints=has_checkpoints),
            role_name=names.signer(environment),
        )
        self.signers = {
            name: self._signer(construct_id, name, noun, program)
            for construct_id, (name, noun, program) in signers.items()
        }
        # Its own statement to pass it names it, and so does whoever starts a job.
        self.recommender_role = role(
            "RecommenderRole",
            trusts="sagemaker",
            statements=recommender_statements(environment),
            role_name=names.recommender(environment),
        )
        statements = job_statements(environment, *images)
        self.job_role = role("JobRole", trusts="sagemaker", statements=statements)
        self.state_machine = self._state_machine(
            [names.image_uri(environment, image, self._tag(image)) for image in images]
        )

    def grant_start(self, grantee: iam.IGrantable) -> iam.Grant:
        """Let an identity start builds of a source that it has uploaded."""
        return self.state_machine.grant_start_execution(grantee)

    def _tag(self, image: str) -> str:
        tag = self._props.image_tags.get(image)
        if tag is None:
            given = ", ".join(sorted(self._props.image_tags)) or "none"
            raise ValueError(
                f"{self.node.path}: image_tags has no tag of {image}, given {given}; allowed: every"
                " builder's image of the platform; add it"
            )
        return tag

    def _build_project(self, route: BuildRoute, buildspec: codebuild.BuildSpec) -> BuildProject:
        environment = self._environment
        tag, fleet = self._tag(route.image), None
        image: codebuild.IBuildImage = codebuild.LinuxBuildImage.from_docker_registry(
            names.image_uri(environment, route.image, tag)
        )
        if route.is_gpu:
            name = names.repository(environment, route.image)
            own = ecr.Repository.from_repository_name(self, f"{route.name.capitalize()}Image", name)
            image = codebuild.LinuxGpuBuildImage.from_ecr_repository(own, tag)
        if route.fleet_arn is not None:
            fleet = codebuild.Fleet.from_fleet_arn(self, "FleetOfGpus", route.fleet_arn)
        variables = {
            "ROUNDHOUSE_ENVIRONMENT": environment.name,
            "ROUNDHOUSE_BUCKET": names.artifact_bucket(environment),
        }
        given = {
            name: codebuild.BuildEnvironmentVariable(value=value)
            for name, value in variables.items()
        }
        machine = codebuild.BuildEnvironment(
            build_image=image,
            compute_type=route.compute_type,
            fleet=fleet,
            environment_variables=given,
        )
        return BuildProject(
            self,
            route.name.capitalize(),
            environment=environment,
            route=route.name,
            description=f"Builds engines of {environment.name} by route {route.name}",
            buildspec=buildspec,
            machine=machine,
            statements=project_statements(environment, route),
            minutes=environment.builds.timeout_minutes,
            queued_minutes=QUEUED_MINUTES,
            # A fleet's machines stand in the network that the fleet itself names.
            network=self._network if route.fleet_arn is None else None,
            reasons={"CB5": BUILDER},
        )

    def _signer(self, construct_id: str, name: str, noun: str, program: str) -> lambda_.Function:
        """Make a function in no VPC: it reaches S3 and KMS alone, and runs nothing of a build's."""
        environment = self._environment
        return lambda_.Function(
            self,
            construct_id,
            function_name=name,
            description=f"Signs and publishes {noun} of {environment.name}",
            runtime=lambda_.Runtime.PYTHON_3_14,
            handler="index.handler",
            code=lambda_.Code.from_inline(program),
            role=self.signer_role.exact,
            timeout=Duration.seconds(SIGNER_SECONDS),
            memory_size=SIGNER_MEMORY_MIB,
            ephemeral_storage_size=Size.mebibytes(SIGNER_DISK_MIB),
            log_group=add_log_group(
                self, f"{construct_id}Logs", f"/aws/lambda/{name}", environment
            ),
            environment={
                "BUCKET": names.artifact_bucket(environment),
                "SIGNING_KEY": arns.signing_key_alias(environment),
                "BUILDER": arns.build_machine(environment),
            },
        )

    def _state_machine(self, images: list[str]) -> sfn.StateMachine:
        """Make the machine; `images` are of training jobs, the one that compiles first.

        Nothing is logged to CloudWatch: every execution's history is kept for 90 days, and a log's
        delivery asks for eight actions on every log of the account.
        """
        environment = self._environment
        statements = machine_statements(
            environment,
            projects=list(self.builds),
            job_role=self.job_role.role_arn,
            signers=list(self.signers),
        )
        self.state_machine_role = self._role("MachineRole", trusts="states", statements=statements)
        states = BuildStates(
            self,
            "States",
            environment=environment,
            projects=list(self.builds),
            signers=self.signers,
            training_image=images[0],
            quantizer_image=images[1] if images[1:] else None,
        )
        machine = sfn.StateMachine(
            self,
            "Machine",
            state_machine_name=names.build_machine(environment),
            state_machine_type=sfn.StateMachineType.STANDARD,
            comment=(
                f"Builds engines of {environment.name}: each that can be built, whatever becomes of"
                " the others"
            ),
            definition_body=sfn.DefinitionBody.from_chainable(states.start),
            definition_substitutions={"JobRole": self.job_role.role_arn},
            role=self.state_machine_role.exact,
        )
        # What a distributed map may do: the given role has it, and Aspects would still find this.
        machine.node.try_remove_child("DistributedMapPolicy")
        Tags.of(machine).add("roundhouse-environment", environment.name)
        add_metadata(machine, SF1=HISTORY, SF2=TIMES)
        return machine
