"""Roles of the pull-request pipeline: who may take each, for how long, and what it may do.

docs/security.md names what every command calls; `tests/synth/test_access_stack.py` holds both
together.
Sources: IAM user guide, "Available keys for AWS OIDC federation"; GitHub docs, "OpenID Connect
reference"; GitLab docs, "Connect to cloud services" and "OpenID Connect (OIDC) Authentication Using
ID Tokens".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aws_cdk import RemovalPolicy
from aws_cdk import aws_iam as iam
from constructs import Construct

from onboarding import arns, names
from onboarding.aws_limits import SESSION_SECONDS
from onboarding.environment_spec import EnvironmentSpec, GithubSpec, GitlabSpec
from roundhouse_cdk.build_roles import CHECKPOINTS, ENGINES, SOURCES, project_arn
from roundhouse_cdk.exact_role import ExactRole
from roundhouse_cdk.statements import (
    TRAINING_LOG_GROUP,
    Condition,
    Permissions,
    Statement,
    Statements,
    allow,
)

BOOTSTRAP_QUALIFIER = "hnb659fds"
"""Of `cdk bootstrap`, unless it is given another."""
AUDIENCE = "sts.amazonaws.com"
MAIN = "refs/heads/main"
PARTS: Condition = {"Bool": {"s3:ObjectCreationOperation": "false"}}
"""The request starts a multipart upload or adds a part; its completion is that of `write_once`."""
NETWORKS = f"{names.NETWORKS_PREFIX}/*"
ADAPTERS = f"{names.ADAPTERS_PREFIX}/*"
PROMOTED = (ENGINES, NETWORKS, CHECKPOINTS)
DESCRIBED = "sagemaker:DescribeEndpoint DescribeInferenceComponent"


@dataclass(frozen=True, kw_only=True)
class PipelineRolesProps:
    """`forge` is where the pipeline runs, `qualifier` that of the account's `cdk bootstrap`.

    `source` is the environment that this one promotes from, `receivers` are those that promote from
    it.
    """

    environment: EnvironmentSpec
    forge: GithubSpec | GitlabSpec
    qualifier: str = BOOTSTRAP_QUALIFIER
    source: EnvironmentSpec | None = None
    receivers: Sequence[EnvironmentSpec] = ()


class PipelineRoles(Construct):
    """Deploys a role for each kind of pipeline run, and the OIDC provider unless it is named.

    `roles` has them by purpose; `provider_arn` is the provider's. A provider stays when the stack
    goes: other environments of the account use it.
    """

    def __init__(self, scope: Construct, construct_id: str, *, props: PipelineRolesProps) -> None:
        super().__init__(scope, construct_id)
        environment, forge = props.environment, props.forge
        if isinstance(forge, GithubSpec):
            provider_id, claims = "GithubProvider", github_trusts(environment, forge)
        else:
            provider_id, claims = "GitlabProvider", gitlab_trusts(forge)
        if forge.oidc_provider_arn is None:
            self.provider_arn = iam.OidcProviderNative(
                self,
                provider_id,
                url=f"https://{forge.issuer}",
                client_ids=[AUDIENCE],
                removal_policy=RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE,
            ).oidc_provider_arn
        else:
            self.provider_arn = forge.oidc_provider_arn
        trusts: dict[names.Purpose, iam.IPrincipal] = {
            purpose: iam.WebIdentityPrincipal(self.provider_arn, _conditions(forge, own))
            for purpose, own in claims.items()
        }
        may: dict[names.Purpose, Statements] = {
            "plan": plan_statements(environment),
            "drift": drift_statements(environment),
            "build": build_statements(environment),
            "deploy": deploy_statements(environment, props.qualifier),
        }
        if props.source is not None:
            may["promote"] = promote_statements(environment, props.source)
        may["gate"] = gate_statements(environment)
        far = [item for item in props.receivers if item.account != environment.account]
        if far:
            trusts["gate"] = iam.CompositePrincipal(*map(_promote_role, far))
        seconds = dict.fromkeys(("plan", "drift", "gate"), SESSION_SECONDS.least)
        self.roles: dict[names.Purpose, iam.Role] = {
            purpose: ExactRole(
                self,
                f"{purpose.capitalize()}Role",
                environment=environment,
                trusts=trusts[purpose],
                statements=statements,
                role_name=names.pipeline_role(environment, purpose),
                session_seconds=seconds.get(purpose, environment.session_seconds),
            )
            for purpose, statements in may.items()
            if purpose in trusts
        }


Claim = str | list[str]
Claims = dict[str, Claim]


def _conditions(forge: GithubSpec | GitlabSpec, claims: Claims) -> dict[str, dict[str, Claim]]:
    """Return a token's claims, with the audience; one that ends in * is a pattern."""
    found: dict[str, dict[str, Claim]] = {}
    for name, value in {"aud": AUDIENCE, **claims}.items():
        is_pattern = isinstance(value, str) and value.endswith("*")
        operator = "StringLike" if is_pattern else "StringEquals"
        found.setdefault(operator, {})[f"{forge.issuer}:{name}"] = value
    return found


def github_trusts(environment: EnvironmentSpec, github: GithubSpec) -> dict[names.Purpose, Claims]:
    """Return what a workflow's token says of each role that it takes, beside the audience.

    One repository's workflows, in one context. What builds, deploys and promotes is one workflow,
    in main's version of it; what deploys, promotes and looks for drift runs for main alone.
    """
    approvals = f"environment:{names.approval_environment(environment)}"
    builds = f"environment:{names.approval_environment(environment, builds=True)}"
    owner, _, name = github.repository.partition("/")
    # Repositories made since 2026-07-15 have the numbers in their tokens' subject.
    numbered = f"{owner}@{github.owner_id}/{name}@{github.repository_id}"

    def claims(context: str, **more: str) -> Claims:
        subjects = [f"repo:{item}:{context}" for item in (github.repository, numbered)]
        return {"sub": subjects, "repository_id": str(github.repository_id), **more}

    run = {"job_workflow_ref": f"{github.repository}/{names.RUN_WORKFLOW}@{MAIN}"}
    deploy = claims(approvals, **run, ref=MAIN)
    return {
        "plan": claims("pull_request"),
        "drift": claims(f"ref:{MAIN}", ref=MAIN),
        "build": claims(builds, **run),
        "deploy": deploy,
        "promote": deploy,
    }


def gitlab_trusts(gitlab: GitlabSpec) -> dict[names.Purpose, Claims]:
    """Return the same of a GitLab pipeline's token, of which AWS knows the subject alone.

    A merge request's pipeline runs for its source branch; so builds are for every branch of the
    project, and all else for main, which GitLab protects. No job asks for `plan`.
    """
    branch = f"project_path:{gitlab.project}:ref_type:branch:ref:"
    main: Claims = {"sub": f"{branch}main"}
    return {"drift": main, "build": {"sub": f"{branch}*"}, "deploy": main, "promote": main}


def _promote_role(receiver: EnvironmentSpec) -> iam.IPrincipal:
    """The role that promotes to an environment, whether it exists yet or not."""
    role = arns.pipeline_role(receiver, "promote")
    root = iam.ArnPrincipal(f"{role.partition(':role/')[0]}:root")
    return root.with_conditions({"ArnEquals": {"aws:PrincipalArn": role}})


def plan_statements(environment: EnvironmentSpec) -> Statements:
    """What is deployed and runs, without a byte of any object."""
    listed = {"StringLike": {"s3:prefix": ENGINES}}
    described = "sagemaker:DescribeEndpoint DescribeEndpointConfig DescribeModel"
    return (
        *_stack_reads(environment, "DescribeStacks GetTemplate"),
        allow("ListEngines", "s3:ListBucket", [arns.bucket(environment)], listed),
        _endpoint_reads(environment, described, "endpoint", "endpoint-config", "model"),
        alarm_reads(environment, "DescribeAlarms"),
    )


def drift_statements(environment: EnvironmentSpec) -> Statements:
    """What CloudFormation does not read of endpoints, and AWS's price list. Code of main asks."""
    return (
        *_stack_reads(environment, "DescribeStacks GetTemplate"),
        _endpoint_reads(environment, DESCRIBED, "endpoint", "inference-component"),
        allow("ReadScaling", "application-autoscaling:DescribeScalableTargets", ["*"]),
        allow("ReadPrices", "pricing:GetProducts", ["*"]),
    )


def _endpoint_reads(environment: EnvironmentSpec, actions: str, *kinds: str) -> Statement:
    """Describe endpoints and what they are made of; `kinds` are their ARNs' words."""
    prefix = names.endpoint_name(environment, "*")
    resources = [arns.arn(environment, "sagemaker", f"{kind}/{prefix}") for kind in kinds]
    return allow("ReadEndpoints", actions, resources)


def _bucket_use(
    environment: EnvironmentSpec, read: Sequence[str], written: Sequence[str]
) -> Statements:
    """Read these objects, list the bucket, and write those objects where none is, with its key."""
    may = Permissions(environment)
    return (
        allow("ReadObjects", "s3:GetObject", arns.bucket_objects(environment, read)),
        allow("ListBucket", "s3:ListBucket", [arns.bucket(environment)]),
        may.use_key(writes=True),
        may.write_once(written),
    )


def _stack_reads(environment: EnvironmentSpec, operations: str) -> Statements:
    """List the account's stacks, which knows no resource, and call these on the environment's."""
    stacks = f"stack/{names.stack_name(environment, '*')}/*"
    resources = [arns.arn(environment, "cloudformation", stacks)]
    return (
        allow("ListStacks", "cloudformation:ListStacks", ["*"]),
        allow("UseStacks", f"cloudformation:{operations}", resources),
    )


def alarm_reads(environment: EnvironmentSpec, operations: str) -> Statement:
    """Alarms are listed by state and by the beginning of their names, so all of an account."""
    alarms = arns.arn(environment, "cloudwatch", "alarm:*")
    return allow("ReadAlarms", f"cloudwatch:{operations}", [alarms])


def build_statements(environment: EnvironmentSpec) -> Statements:
    """Sources that are written once, and the machine that builds from them."""
    return (
        *_bucket_use(environment, [ENGINES, CHECKPOINTS, SOURCES], [SOURCES]),
        *_machine_use(environment),
    )


def deploy_statements(environment: EnvironmentSpec, qualifier: str) -> Statements:
    """The CDK's roles, and what a deployment checks with its own credentials.

    `qualifier` is that of the account's `cdk bootstrap`.
    """
    place = f"role-{environment.account}-{environment.region}"
    cdk_roles = [
        arns.role(environment, f"cdk-{qualifier}-{kind}-{place}")
        for kind in ("deploy", "file-publishing", "lookup")
    ]
    read = [ENGINES, NETWORKS, CHECKPOINTS, ADAPTERS, SOURCES]
    stacks = "DescribeStackResources DescribeStacks GetTemplate UpdateTerminationProtection"
    images = [project_arn(environment, names.IMAGES_ROUTE)]
    tags = "s3:DeleteObjectTagging GetObjectTagging PutObjectTagging"
    return (
        *_bucket_use(environment, read, [SOURCES, ADAPTERS]),
        allow("LookAtImages", "ecr:DescribeImages", [arns.repository(environment, "*")]),
        allow("BuildImages", "codebuild:StartBuild", images),
        *_machine_use(environment),
        *_stack_reads(environment, stacks),
        alarm_reads(environment, "DescribeAlarms"),
        allow("ReadQuotas", "servicequotas:ListAWSDefaultServiceQuotas ListServiceQuotas", ["*"]),
        allow("TagEngines", tags, arns.bucket_objects(environment, PROMOTED)),
        _endpoint_reads(environment, DESCRIBED, "endpoint", "inference-component"),
        allow("AssumeDeploymentRoles", "sts:AssumeRole", cdk_roles),
    )


def promote_statements(environment: EnvironmentSpec, source: EnvironmentSpec) -> Statements:
    """What the environment before built, its alarms, and own objects that are written once."""
    key = source.kms_key_arn or arns.arn(source, "kms", "key/*")
    parts = arns.bucket_objects(environment, (ENGINES, NETWORKS))
    alarms = gate_statements(source)
    if source.account != environment.account:
        gate = arns.pipeline_role(source, "gate")
        alarms = (allow("ReadAlarmsBefore", "sts:AssumeRole", [gate]),)
    return (
        allow("ReadSource", "s3:GetObject", arns.bucket_objects(source, PROMOTED)),
        allow("ListSource", "s3:ListBucket", [arns.bucket(source)]),
        allow("UseSourceKey", "kms:Decrypt", [key], source_key_condition(source)),
        *alarms,
        *_bucket_use(environment, PROMOTED, PROMOTED),
        allow("WriteParts", "s3:PutObject", parts, PARTS),
    )


def gate_statements(environment: EnvironmentSpec) -> Statements:
    """Alarms, which a promotion to another account asks about."""
    return (alarm_reads(environment, "DescribeAlarmHistory DescribeAlarms"),)


def source_key_condition(source: EnvironmentSpec) -> Condition:
    """Return the condition that a key decrypts objects of an environment's bucket alone.

    S3 names the object to KMS, or with a bucket key the bucket. Source: Amazon S3 user guide,
    "Reducing the cost of SSE-KMS with Amazon S3 Bucket Keys".
    """
    bucket = arns.bucket(source)
    return {
        "StringEquals": {"kms:ViaService": f"s3.{source.region}.amazonaws.com"},
        "StringLike": {"kms:EncryptionContext:aws:s3:arn": [bucket, f"{bucket}/*"]},
    }


def promotion_reads(
    environment: EnvironmentSpec, receivers: Sequence[EnvironmentSpec]
) -> Statements:
    """Return the bucket policy's statements for the promote roles of other accounts.

    A role that does not exist yet could not be a principal, so its account is, on the condition
    that it is that role.
    """
    objects, bucket = arns.bucket_objects(environment, PROMOTED), [arns.bucket(environment)]
    prefixes: Condition = {"StringLike": {"s3:prefix": list(PROMOTED)}}
    return (
        {**allow("ReadPromoted", "s3:GetObject", objects), **_of_roles(receivers)},
        {**allow("ListPromoted", "s3:ListBucket", bucket), **_of_roles(receivers, prefixes)},
    )


def promotion_decryption(
    environment: EnvironmentSpec, receivers: Sequence[EnvironmentSpec]
) -> Statement:
    """Return the key policy's statement: objects of the bucket, through S3, for those roles."""
    statement = allow("DecryptPromoted", "kms:Decrypt", ["*"])
    return {**statement, **_of_roles(receivers, source_key_condition(environment))}


def _of_roles(
    receivers: Sequence[EnvironmentSpec], condition: Condition | None = None
) -> Statement:
    """Return principal and condition of a statement for the receivers' promote roles."""
    roles = [arns.pipeline_role(receiver, "promote") for receiver in receivers]
    roots = [f"{role.partition(':role/')[0]}:root" for role in roles]
    return {
        "Principal": {"AWS": roots},
        "Condition": {"ArnEquals": {"aws:PrincipalArn": roles}, **(condition or {})},
    }


def _machine_use(environment: EnvironmentSpec) -> Statements:
    """Start the state machine's executions, follow them down to their logs, and stop them.

    They are stopped when whoever waits for them is interrupted.
    """
    builders = f"/aws/codebuild/{names.builder_project(environment, '*')}"
    groups = [arns.log_group(environment, name) for name in (builders, TRAINING_LOG_GROUP)]
    logs = [form for group in groups for form in (group, f"{group}:*")]
    projects, runs = (
        [project_arn(environment, "*")],
        arns.build_executions(environment, "execution"),
    )
    followed = arns.build_executions(environment, "execution", "mapRun")
    follow = "states:DescribeExecution GetExecutionHistory ListExecutions ListMapRuns"
    stop = "codebuild:BatchGetProjects ListBuildsForProject StopBuild"
    return (
        allow("StartBuilds", "states:StartExecution", [arns.build_machine(environment)]),
        allow("FollowBuilds", follow, followed),
        allow("LookAtBuilds", "codebuild:BatchGetBuilds", projects),
        allow("ReadBuildLogs", "logs:DescribeLogStreams GetLogEvents", logs),
        allow("StopExecutions", "states:StopExecution", runs),
        allow("StopBuilds", stop, projects),
        allow("ListJobs", "sagemaker:ListTrainingJobs", ["*"]),
        allow("StopJobs", "sagemaker:StopTrainingJob", [arns.training_jobs(environment)]),
    )
