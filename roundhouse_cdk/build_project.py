"""CodeBuild projects with role and log group, their kinds of machine, and that of the images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_codebuild as codebuild
from aws_cdk import aws_kms as kms
from aws_cdk import aws_logs as logs
from constructs import Construct

from onboarding import arns, names
from onboarding.environment_spec import EnvironmentSpec
from onboarding.platform import ServingPlatform, aws_partition, triton_registries
from onboarding.text_generation.checkpoint_key import QUANTIZER, QUANTIZER_IMAGE
from roundhouse_cdk.exact_role import ExactRole, add_metadata
from roundhouse_cdk.statements import (
    PULL,
    REGISTRY_LOG_IN,
    Permissions,
    Statement,
    Statements,
    allow,
)
from roundhouse_cdk.vpc_endpoints import Network

PUSH = (
    "ecr:BatchCheckLayerAvailability BatchGetImage CompleteLayerUpload DescribeImages"
    " GetDownloadUrlForLayer InitiateLayerUpload PutImage UploadLayerPart"
)
OUTPUT = "every build names its own output in S3, which the bucket encrypts by key"
"""Why a project needs no key (CB4)."""


class BuildProject(Construct):
    """Deploys a project without a source: every build brings one, as a zip in the artifact bucket.

    So a changed model changes no template. It takes a build route, its machine, what its role may
    do, and time limits in minutes; without a `network` the builds run in no VPC. `reasons` are why
    rules of cdk-nag, by id such as CB3, do not apply. Attributes: `project`, `role`, `log_group`.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        environment: EnvironmentSpec,
        route: str,
        description: str,
        buildspec: codebuild.BuildSpec,
        machine: codebuild.BuildEnvironment,
        statements: Sequence[Statement],
        minutes: int,
        queued_minutes: int,
        reasons: Mapping[str, str],
        network: Network | None = None,
    ) -> None:
        super().__init__(scope, construct_id)
        self.log_group = add_log_group(
            self, "Logs", log_group_name(environment, route), environment
        )
        self.role = ExactRole(
            self, "Role", environment=environment, trusts="codebuild", statements=statements
        )
        self.project = codebuild.Project(
            self,
            "Project",
            project_name=names.builder_project(environment, route),
            description=description,
            build_spec=buildspec,
            environment=machine,
            role=self.role.exact,
            logging=codebuild.LoggingOptions(
                cloud_watch=codebuild.CloudWatchLoggingOptions(log_group=self.log_group)
            ),
            timeout=Duration.minutes(minutes),
            queued_timeout=Duration.minutes(queued_minutes),
            vpc=None if network is None else network.vpc,
            subnet_selection=None if network is None else network.subnets,
            security_groups=None if network is None else network.security_groups,
        )
        # Of a project in a VPC: a policy that a given role leaves out of the template, and that
        # Aspects would still find.
        self.project.node.try_remove_child("PolicyDocument")
        add_metadata(self.project, (), CB4=OUTPUT, **reasons)


def log_group_name(environment: EnvironmentSpec, route: str) -> str:
    """The log group of a project, by its build route."""
    return f"/aws/codebuild/{names.builder_project(environment, route)}"


def add_log_group(
    scope: Construct, construct_id: str, name: str, environment: EnvironmentSpec
) -> logs.LogGroup:
    """Make a log group, kept as long as sources of builds: after that none is repeated.

    It is encrypted by the key that the environment names, whose policy must let CloudWatch Logs use
    it, else by CloudWatch's own: it takes no key by an alias, and ours has no other name here.
    """
    arn = environment.kms_key_arn
    key = None if arn is None else kms.Key.from_key_arn(scope, f"{construct_id}Key", arn)
    return logs.LogGroup(
        scope,
        construct_id,
        log_group_name=name,
        encryption_key=key,
        retention=logs.RetentionDays.THREE_MONTHS,
        removal_policy=RemovalPolicy.DESTROY,
    )


@dataclass(frozen=True, kw_only=True)
class BuildRoute:
    """One kind of machine that CodeBuild has builds run on; a fleet brings its own."""

    name: str
    image: str
    compute_type: codebuild.ComputeType
    is_gpu: bool = False
    fleet_arn: str | None = None


# 16 GiB: exporting and quantizing BERT-large takes 6.7 at its peak (docs/verification.md), and the
# next size down has 8 in all.
CPU = BuildRoute(name="cpu", image="builder-cpu", compute_type=codebuild.ComputeType.LARGE)
# The one on-demand GPU of use: an A10G, compute capability 8.6.
GPU = BuildRoute(
    name="gpu", image="builder-gpu", compute_type=codebuild.ComputeType.SMALL, is_gpu=True
)
# Calibration and gate hold a model of 2 billion parameters twice, in 16 and in 32 bits: 12 GB and
# their activations of 70 (CodeBuild user guide, "Build environment compute modes and types").
QUANTIZER_ROUTE = BuildRoute(
    name=QUANTIZER, image=QUANTIZER_IMAGE, compute_type=codebuild.ComputeType.X_LARGE
)


def build_routes(environment: EnvironmentSpec, platform: ServingPlatform) -> tuple[BuildRoute, ...]:
    """The routes that have a project.

    Those of GPUs need TensorRT, and CodeBuild's GPUs or a fleet.
    """
    if platform.tensorrt is None:
        return (CPU,)
    on_demand = (CPU, GPU) if environment.has_codebuild_gpu else (CPU,)
    if environment.gpu_fleet_arn is None:
        return on_demand
    # Machine and type are the fleet's; CodeBuild asks for both, and takes neither.
    return (*on_demand, replace(GPU, name="fleet", fleet_arn=environment.gpu_fleet_arn))


def training_image(platform: ServingPlatform) -> str:
    """The image of training jobs: what compiles for a GPU, wherever there is TensorRT."""
    return CPU.image if platform.tensorrt is None else GPU.image


@dataclass(frozen=True, kw_only=True)
class ImageBuildsProps:
    """`images` are pushed; `base_repositories` are those of AWS's registry that ours start from."""

    environment: EnvironmentSpec
    images: Sequence[str]
    base_repositories: Sequence[str]
    buildspec: codebuild.BuildSpec


class ImageBuilds(BuildProject):
    """Deploys a CodeBuild project with a Docker daemon, so that nobody's own machine needs one.

    It stays outside the environment's VPC: it needs public packages and base images, and sees no
    model, data or engine.
    """

    def __init__(self, scope: Construct, construct_id: str, *, props: ImageBuildsProps) -> None:
        environment = props.environment
        machine = codebuild.BuildEnvironment(
            # CodeBuild's own: Docker, Python and the AWS command line.
            build_image=codebuild.LinuxBuildImage.STANDARD_7_0,
            # 128 GB of disk: Triton's image alone is 20 unpacked.
            compute_type=codebuild.ComputeType.LARGE,
            # What starts a Docker daemon in the build.
            privileged=True,
        )
        super().__init__(
            scope,
            construct_id,
            environment=environment,
            route=names.IMAGES_ROUTE,
            description=f"Builds container images of {environment.name}",
            buildspec=props.buildspec,
            machine=machine,
            statements=image_statements(props),
            minutes=120,
            queued_minutes=60,
            reasons={"CB3": "a build of images runs Docker"},
        )


def image_statements(props: ImageBuildsProps) -> Statements:
    """Every statement of the project's role.

    Read its source, pull the base images, push the images, write its log. No base image is pulled
    in a region whose registry of AWS is not known.
    """
    environment, may = props.environment, Permissions(props.environment)
    account, region = triton_registries().get(environment.region), environment.region
    registry = f"arn:{aws_partition(region)}:ecr:{region}:{account}:repository"
    bases = [f"{registry}/{name}" for name in props.base_repositories if account is not None]
    return (
        allow("PushImages", PUSH, [arns.repository(environment, name) for name in props.images]),
        REGISTRY_LOG_IN,
        *([allow("PullBaseImage", PULL, bases)] if bases else []),
        may.read([f"{names.SOURCES_PREFIX}/*"]),
        may.list_bucket(),
        may.use_key(writes=False),
        may.write_logs(log_group_name(environment, names.IMAGES_ROUTE)),
    )
