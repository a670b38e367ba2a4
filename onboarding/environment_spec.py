"""The facts and overrides of one environment file, `environments/<name>.yaml`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from onboarding.aws_limits import (
    BUILD_MINUTES,
    GITHUB_ISSUER,
    SECURITY_GROUP_COUNT,
    SESSION_SECONDS,
    SUBNET_COUNT,
    TRAINING_VOLUME_GIB,
)
from onboarding.platform import CODEBUILD_GPU_REGIONS
from onboarding.signature import MOST_SIGNERS
from onboarding.source_spec import (
    MOST_SOURCE_BUCKETS,
    SourceBucketSpec,
    SourceSecretsSpec,
)
from onboarding.values import Value

_DIGITS = "([0-9a-f]{8}|[0-9a-f]{17})"
_ID = "8 or 17 hexadecimal digits"


class NetworkSpec(Value):
    """The VPC that endpoints and builds run in."""

    vpc_id: Annotated[str, Field(pattern=rf"^vpc-{_DIGITS}$")] = Field(
        description=f"VPC, such as vpc-0123456789abcdef0: vpc- and {_ID}"
    )
    subnet_ids: tuple[Annotated[str, Field(pattern=rf"^subnet-{_DIGITS}$")], ...] = Field(
        min_length=1,
        max_length=SUBNET_COUNT,
        description=f"Private subnets, each subnet- and {_ID}; SageMaker takes {SUBNET_COUNT} at "
        "most",
    )
    security_group_ids: tuple[Annotated[str, Field(pattern=rf"^sg-{_DIGITS}$")], ...] = Field(
        min_length=1,
        max_length=SECURITY_GROUP_COUNT,
        description=f"Security groups, each sg- and {_ID}; SageMaker takes {SECURITY_GROUP_COUNT} "
        "at most",
    )
    route_table_ids: tuple[Annotated[str, Field(pattern=rf"^rtb-{_DIGITS}$")], ...] = Field(
        (),
        description=f"Route tables of the subnets, each rtb- and {_ID}, which the S3 endpoint is "
        "entered into",
    )
    vpc_endpoints: bool = Field(
        False,
        description="Make the VPC endpoints that isolated subnets need: S3, ECR, logs, "
        "SageMaker, STS, KMS",
    )


class SlackSpec(Value):
    """A Slack channel, as Amazon Q Developer in chat applications knows it."""

    workspace: Annotated[str, Field(pattern=r"^T[0-9A-Z]{1,254}$")] = Field(
        description="The workspace's id, such as T0123ABCDEF; authorize the workspace once in the "
        "console of Amazon Q Developer in chat applications"
    )
    channel: Annotated[str, Field(pattern=r"^[CG][0-9A-Z]{1,254}$")] = Field(
        description="The channel's id, such as C0123ABCDEF: the end of the channel's link"
    )


class GithubSpec(Value):
    """The GitHub repository whose workflows plan, build, deploy and promote."""

    repository: Annotated[str, Field(pattern=r"^[A-Za-z0-9-]+/[A-Za-z0-9._-]+$")] = Field(
        description="Owner and name, such as acme/models"
    )
    repository_id: Annotated[int, Field(ge=1)] = Field(
        description="The repository's number, which outlives its name: `gh api repos/OWNER/NAME "
        "--jq .id`"
    )
    owner_id: Annotated[int, Field(ge=1)] = Field(
        description="The owner's number: `gh api repos/OWNER/NAME --jq .owner.id`"
    )
    oidc_provider_arn: str | None = Field(
        None,
        description="GitHub's OIDC provider, where the account has it already; default: the access "
        "stack makes it",
    )

    @property
    def issuer(self) -> str:
        """Who signs the workflows' tokens."""
        return GITHUB_ISSUER


class GitlabSpec(Value):
    """The GitLab project whose pipelines build, deploy and promote."""

    project: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)+$")] = Field(
        description="Path of groups and project, such as acme/models"
    )
    host: Annotated[str, Field(pattern=r"^[a-z0-9-]+(\.[a-z0-9-]+)+$")] = Field(
        "gitlab.com", description="GitLab's host, which AWS must reach to verify its tokens"
    )
    oidc_provider_arn: str | None = Field(
        None,
        description="GitLab's OIDC provider, where the account has it already; default: the access "
        "stack makes it",
    )

    @property
    def issuer(self) -> str:
        """Who signs the pipelines' tokens."""
        return self.host


class BuildsSpec(Value):
    """How engines are built."""

    at_once: Annotated[int, Field(ge=1, le=40)] = Field(4, description="Builds that run at once")
    capacity_retries: Annotated[int, Field(ge=0, le=20)] = Field(
        6, description="How often a build is started again that found no capacity"
    )
    timeout_minutes: Annotated[int, Field(ge=BUILD_MINUTES.least, le=BUILD_MINUTES.most)] = Field(
        240, description="Longest build"
    )
    codebuild_gpu: bool = Field(
        True,
        description="Build A10G engines in on-demand CodeBuild where the region has it; false: "
        "as those of every other GPU",
    )
    volume_gib: Annotated[int, Field(ge=TRAINING_VOLUME_GIB.least, le=TRAINING_VOLUME_GIB.most)] = (
        Field(
            100,
            description="Volume of a training job that builds; unused on types with NVMe storage",
        )
    )
    poll_seconds: Annotated[int, Field(ge=1, le=300)] = Field(
        15,
        description="Between two looks at a build, at first; four times as long before one "
        "that found no capacity starts again",
    )


class GatesSpec(Value):
    """What must be known of every endpoint before its engines are promoted."""

    quiet_minutes: Annotated[int, Field(ge=0, le=20_160)] = Field(
        60, description="No alarm of the endpoint rang for so long; 0: alarms are not asked"
    )


ServingImage = Literal[
    "python-server",
    "python-server-baseline",
    "python-server-gpu",
    "python-server-gpu-baseline",
    "triton",
]
"""An image that answers requests."""
PLATFORM_IMAGES: frozenset[ServingImage] = frozenset(
    {"python-server-gpu", "python-server-gpu-baseline", "triton"}
)
"""Those that start from the serving platform's base image."""


class ImagePinSpec(Value):
    """One image of an earlier version of the code, as the environment's registry has it."""

    tag: Annotated[str, Field(pattern=r"^[0-9a-f]{20}$")] = Field(
        description="Its tag, the digest of its content"
    )
    digest: Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")] | None = Field(
        None, description="Its digest in the registry, which endpoints then run; default: the tag"
    )
    platform: str | None = Field(
        None,
        description="The serving platform that it starts from; to be named of triton, "
        "python-server-gpu and python-server-gpu-baseline",
    )


class ImagesSpec(Value):
    """Serving images that stay as they are when the code changes."""

    pinned: dict[ServingImage, ImagePinSpec] = Field(
        default_factory=dict,
        description="By image; `roundhouse build --images` shows them. Default: the code's own",
    )
    except_: tuple[str, ...] = Field(
        (),
        alias="except",
        description="Endpoints that run the code's own images all the same, by name",
    )

    def pin(self, image: str, endpoint: str) -> ImagePinSpec | None:
        """Return the version of an image that an endpoint stays with; None: the code's own."""
        pins: Mapping[str, ImagePinSpec] = dict(self.pinned.items())
        return None if endpoint in self.except_ else pins.get(image)


class ModelsSpec(Value):
    """Which models an environment deploys, and its overrides of them by model name."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, dict[str, Any]]

    only: tuple[str, ...] | None = Field(
        None,
        min_length=1,
        description="Deploy these models alone: names, or label=value; default: every model",
    )
    except_: tuple[str, ...] | None = Field(
        None,
        alias="except",
        min_length=1,
        description="Deploy every model but these: names, or label=value",
    )

    @property
    def overrides(self) -> Mapping[str, Mapping[str, Any]]:
        """A part of the model file, by model name."""
        return self.__pydantic_extra__


class EnvironmentSpec(Value):
    """One account and region, its serving platform, and what it changes of each model."""

    name: Annotated[str, Field(pattern=r"^[a-z](-?[a-z0-9])*$", max_length=16)] = Field(
        description="The file's name without .yaml: at most 16 lower-case letters, digits and "
        "single hyphens, a letter first"
    )
    account: Annotated[str, Field(pattern=r"^[0-9]{12}$")] = Field(
        description="AWS account id, twelve digits in quotes"
    )
    region: Annotated[str, Field(pattern=r"^[a-z]{2}(-[a-z]+)+-[0-9]$")] = Field(
        description="AWS region, such as us-east-1"
    )
    platform: str = Field(description="A row of onboarding/data/serving_platforms.yaml")
    locks: str = Field(
        "models", description="Folder of the lock files, relative to the onboarding root"
    )
    kms_key_arn: str | None = Field(
        None,
        description="Customer key of the bucket and volumes; default: the foundation stack "
        "makes one",
    )
    network: NetworkSpec | None = Field(
        None, description="VPC of endpoints and builds; default: none"
    )
    permissions_boundary_arn: str | None = Field(
        None, description="Permissions boundary of every role"
    )
    alarm_email: Annotated[str, Field(pattern=r"^[^@\s]+@[^@\s]+\.[^@\s.]+$")] | None = Field(
        None, description="Address that alarms are sent to, such as name@example.com"
    )
    alarm_https: tuple[
        Annotated[str, Field(pattern=r"^https://[A-Za-z0-9.-]+(:[0-9]+)?(/[^\s@]*)?$")], ...
    ] = Field(
        (),
        max_length=5,
        description="HTTPS addresses that alarms are sent to, such as PagerDuty's integration URL: "
        "https://HOST/PATH without a user and a password",
    )
    alarm_slack: SlackSpec | None = Field(
        None, description="Slack channel that alarms are sent to; default: none"
    )
    inference_ami_version: str | None = Field(
        None, description="Default: the platform's; must be named where the platform leaves it open"
    )
    gpu_fleet_arn: str | None = Field(
        None,
        description="CodeBuild fleet that builds for compute capabilities on-demand CodeBuild "
        "lacks",
    )
    builds: BuildsSpec = Field(BuildsSpec(), description="How engines are built")
    source_buckets: tuple[SourceBucketSpec, ...] = Field(
        (),
        max_length=MOST_SOURCE_BUCKETS,
        description="Buckets beside the environment's own that `source.onnx` and "
        "`source.checkpoint` may name; builds copy what they read, once",
    )
    source_secrets: SourceSecretsSpec = Field(
        SourceSecretsSpec(),
        description="Secrets that open private Hugging Face repositories",
    )
    unreferenced_engine_days: Annotated[int, Field(ge=1, le=3650)] = Field(
        90,
        description="Days that an engine is kept which `roundhouse prune` marked, because no "
        "lock names it",
    )
    trusted_signers: tuple[str, ...] = Field(
        (),
        max_length=MOST_SIGNERS,
        description="Public keys of engines that are deployed and served, as `aws kms "
        "get-public-key` prints them: base64 of a P-256 key in DER; default: signatures are not "
        "asked for",
    )
    promotes_from: str | None = Field(
        None,
        description="The environment whose engines this one receives by `roundhouse promote`; it "
        "builds none that the other holds",
    )
    gates: GatesSpec = Field(
        GatesSpec(), description="What `roundhouse promote` asks for before it changes this one"
    )
    images: ImagesSpec = Field(
        ImagesSpec(), description="Serving images that endpoints stay with when the code changes"
    )
    github: GithubSpec | None = Field(
        None,
        description="The repository whose workflows may work here, each by a role of its own; "
        "default: none",
    )
    gitlab: GitlabSpec | None = Field(
        None,
        description="The same for a GitLab project, instead of a GitHub repository; default: none",
    )
    models: ModelsSpec = Field(
        ModelsSpec(),
        description="`only` or `except`: which models are deployed; every other key is a model's "
        "name, with overrides: a part of the model file",
    )
    endpoints: dict[str, dict[str, Any]] = Field(
        default_factory=dict, description="Overrides, by shared endpoint name: a part of its file"
    )

    def overrides(self, section: Literal["models", "endpoints"]) -> Mapping[str, Mapping[str, Any]]:
        """The overrides of the files in models/ or endpoints/, by name."""
        return self.models.overrides if section == "models" else self.endpoints

    @property
    def forge(self) -> GithubSpec | GitlabSpec | None:
        """Where the pull-request pipeline runs, whose jobs take roles here."""
        return self.github or self.gitlab

    @property
    def session_seconds(self) -> int:
        """How long the workflows' sessions for builds, deployments and promotions may last."""
        return SESSION_SECONDS.clamp(60 * self.builds.timeout_minutes)

    @property
    def has_codebuild_gpu(self) -> bool:
        """Whether engines for an A10G are built in on-demand CodeBuild."""
        return self.builds.codebuild_gpu and self.region in CODEBUILD_GPU_REGIONS


def promotion_neighbours(
    environment: EnvironmentSpec, environments: Mapping[str, EnvironmentSpec]
) -> tuple[EnvironmentSpec | None, tuple[EnvironmentSpec, ...]]:
    """Return the environment that one promotes from, and those whose workflows promote from it.

    `environments` are all of the tree, by name.
    """
    receivers = (
        other
        for other in environments.values()
        if other.promotes_from == environment.name and other.forge is not None
    )
    return environments.get(environment.promotes_from or ""), tuple(receivers)
