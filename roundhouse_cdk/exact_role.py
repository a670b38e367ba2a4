"""An IAM role with one inline policy, and the reasons of the wildcards in its statements.

cdk-nag, which is not imported here, reads `Metadata: {cdk_nag: {rules_to_suppress: ...}}` of a
resource.
A wildcard that no entry covers stays a finding of whoever adds cdk-nag to a stage.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast

from aws_cdk import CfnResource, Duration
from aws_cdk import aws_iam as iam
from constructs import Construct, IConstruct

from onboarding.environment_spec import EnvironmentSpec
from roundhouse_cdk.statements import Statement


class ExactRole(iam.Role):
    """Deploys a role within the environment's permissions boundary.

    The policy is inline: whoever needs the role finds it complete, and no grant of a construct that
    is given `exact` widens it. A service's name, such as `codebuild`, or a principal may assume it;
    a service for this account alone.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        environment: EnvironmentSpec,
        trusts: str | iam.IPrincipal,
        statements: Sequence[Statement],
        role_name: str | None = None,
        session_seconds: int | None = None,
    ) -> None:
        principal, named = trusts, environment.permissions_boundary_arn
        if isinstance(principal, str):
            account = {"StringEquals": {"aws:SourceAccount": environment.account}}
            principal = iam.ServicePrincipal(f"{trusts}.amazonaws.com", conditions=account)
        seconds = None if session_seconds is None else Duration.seconds(session_seconds)
        boundary: iam.IManagedPolicy | None = None
        if named is not None:
            known = iam.ManagedPolicy.from_managed_policy_arn
            boundary = known(scope, f"{construct_id}Boundary", named)
        document = iam.PolicyDocument.from_json({"Statement": list(statements)})
        super().__init__(
            scope,
            construct_id,
            role_name=role_name,
            assumed_by=principal,
            max_session_duration=seconds,
            inline_policies={"exact": document},
            permissions_boundary=boundary,
        )
        add_metadata(self, statements)

    @property
    def exact(self) -> iam.IRole:
        """The same role for constructs that would add permissions of their own."""
        return self.without_policy_updates()


@dataclass(frozen=True)
class Wildcard:
    """Wildcards that may stand: why, in which statements by their ids, narrowed by which keys.

    An id's number counts not. `conditions` are those keys, of which a statement must have each.
    """

    why: str
    statements: str
    conditions: str = ""

    def covers(self, sid: str, keys: frozenset[str]) -> bool:
        """Return True when the wildcards of a statement with these conditions' keys are these."""
        named = sid.rstrip("0123456789") in self.statements.split()
        return named and keys >= set(self.conditions.split())


WILDCARDS = (
    Wildcard(
        "these actions know no resource; they read or list only, or open what others name",
        "DescribeNetwork DrawMetrics ListJobs ListStacks LogInToRegistry ReadBenchmarkMetrics"
        " ReadPrices ReadQuotas ReadScaling",
    ),
    Wildcard(
        "metrics know no resource; the namespace narrows it",
        "PublishHostMetrics",
        "cloudwatch:namespace",
    ),
    Wildcard(
        "a network interface has no name before it is made; subnets and security groups of the"
        " same statement are named",
        "AttachToNetwork",
    ),
    Wildcard(
        "interfaces of the named subnets are handed to the one service",
        "HandInterfaces",
        "ec2:AuthorizedService ec2:Subnet",
    ),
    Wildcard(
        "interfaces of the environment's VPC alone are handed over", "HandInterfaces", "ec2:Vpc"
    ),
    Wildcard(
        "a key's id is known only after its creation; its alias narrows it, and what its statement"
        " says beside it: the service, the algorithm, or a resource of AWS",
        "EncryptOutput GrantKey ReadKey ReadPublicKey Sign UseKey UseKeyThroughSns",
        "kms:ResourceAliases",
    ),
    Wildcard(
        "the id of another account's key is not known; the bucket whose objects it decrypts,"
        " through S3, narrows it",
        "UseSourceKey",
        "kms:EncryptionContext:aws:s3:arn kms:ViaService",
    ),
    Wildcard(
        "objects under one prefix of the artifact bucket: what is read or built has no name before"
        " it is there",
        "ReadCheckpoint ReadObjects ReadSource WriteObjects WriteOnce WriteParts",
    ),
    Wildcard("the mark of `roundhouse prune` on objects under one prefix", "TagEngines"),
    Wildcard(
        "sources of a bucket that the environment names: a prefix of it, read only",
        "ReadSources",
        "aws:ResourceAccount",
    ),
    Wildcard(
        "a log group, in the form that IAM knows it by, its streams, each named by its service"
        " when it begins, and groups of recommendation jobs' endpoints",
        "FindJobLog WriteBenchmarkLogs WriteJobLog WriteLogs",
    ),
    Wildcard(
        "logs of build projects and of training jobs, in both forms that IAM knows; read only",
        "ReadBuildLogs",
    ),
    Wildcard(
        "executions of one state machine, each named when it begins",
        "FollowBuilds FollowEngines StopExecutions",
    ),
    Wildcard(
        "this environment's training jobs, and the models that recommendation jobs measure",
        "ReadBenchmarkedModel RunTrainingJobs StopJobs",
    ),
    Wildcard(
        "what AWS makes and deletes for the benchmarks of recommendation jobs", "RunBenchmarks"
    ),
    Wildcard(
        "endpoints of this environment, whose files come and go; read only",
        "ReadBenchmarkedModel ReadEndpoints",
    ),
    Wildcard("stacks of this environment, whose ids CloudFormation makes", "UseStacks"),
    Wildcard(
        "alarms are listed by state and by the beginning of their names; read only",
        "DescribeOwnAlarms ReadAlarms",
    ),
    Wildcard(
        "the environment's build projects, of which it has up to four", "LookAtBuilds StopBuilds"
    ),
    Wildcard("the environment's image repositories; read only", "LookAtImages"),
)


def add_metadata(construct: IConstruct, statements: Sequence[Statement] = (), **rules: str) -> None:
    """Write beside a construct's resource why wildcards may stand, and rules do not apply.

    `rules` are reasons by cdk-nag's id, such as S1. Nothing where nothing needs a reason.
    """
    found: dict[str, set[str]] = {}
    for why, arn in _wildcards(statements):
        found.setdefault(why, set()).add(f"Resource::{arn}")
    suppressed = [
        *({"id": f"AwsSolutions-{rule}", "reason": reason} for rule, reason in rules.items()),
        *(
            {"id": "AwsSolutions-IAM5", "reason": why, "applies_to": sorted(findings)}
            for why, findings in found.items()
        ),
    ]
    if suppressed:
        resource = cast("CfnResource", construct.node.default_child)
        resource.add_metadata("cdk_nag", {"rules_to_suppress": suppressed})


def _wildcards(statements: Sequence[Statement]) -> Iterator[tuple[str, str]]:
    """Yield (reason, ARN) of the wildcards of statements that an entry covers."""
    for statement in statements:
        conditions = statement.get("Condition", {}).values()
        keys = frozenset(key for operator in conditions for key in operator)
        for arn in statement["Resource"]:
            for wildcard in WILDCARDS if isinstance(arn, str) and "*" in arn else ():
                if wildcard.covers(statement["Sid"], keys):
                    yield wildcard.why, arn
