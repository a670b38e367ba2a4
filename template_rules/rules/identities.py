"""Rules of IAM: exact actions on exact resources, for services and accounts that are named."""

from __future__ import annotations

import re
from collections.abc import Iterator

from template_rules.policies import (
    ROLE,
    Statement,
    identity_statements,
    resource_statements,
    trust_statements,
)
from template_rules.rule import resource_rule, rule
from template_rules.templates import Assembly, Finding, Resource
from template_rules.values import display, fields, is_known, known_text, texts

EVERYTHING = re.compile(r"\*|arn:[^:]*:(\*|[a-z0-9-]*):[^:]*:[^:]*:\*")
FULL_ACCESS = re.compile(r"(FullAccess|AdministratorAccess|PowerUserAccess)$")
OWN_SERVICES = ("sagemaker.amazonaws.com", "codebuild.amazonaws.com", "states.amazonaws.com")
WITHOUT_RESOURCES = """
ecr:GetAuthorizationToken cloudwatch:PutMetricData ec2:DescribeDhcpOptions
ec2:DescribeNetworkInterfaces ec2:DescribeSecurityGroups ec2:DescribeSubnets ec2:DescribeVpcs
chatbot:DescribeSlackChannelConfigurations cloudwatch:GetMetricWidgetImage
logs:DescribeLogGroups sts:GetCallerIdentity
xray:PutTraceSegments xray:PutTelemetryRecords xray:GetSamplingRules xray:GetSamplingTargets
cloudwatch:GetMetricData cloudwatch:GetMetricStatistics cloudwatch:ListMetrics tag:GetResources
logs:CreateLogDelivery logs:GetLogDelivery logs:UpdateLogDelivery logs:DeleteLogDelivery
logs:ListLogDeliveries logs:PutResourcePolicy logs:DescribeResourcePolicies s3:ListAllMyBuckets
codebuild:ListProjects sagemaker:ListEndpoints cloudformation:ListStacks
servicequotas:GetServiceQuota servicequotas:ListServiceQuotas
servicequotas:ListAWSDefaultServiceQuotas sagemaker:ListTrainingJobs
application-autoscaling:DescribeScalableTargets application-autoscaling:DescribeScalingPolicies
application-autoscaling:DescribeScheduledActions pricing:GetProducts
""".lower().split()
"""Actions that take `*` only. Source: Service Authorization Reference."""


@rule("E9220", "Policy that allows all actions, a whole service, or all but some")
def exact_actions(assembly: Assembly) -> Iterator[Finding]:
    """A policy allows actions by name."""
    for statement in identity_statements(assembly):
        if not statement.allows:
            continue
        for key in ("NotAction", "NotResource"):
            if key in statement.content:
                yield _problem(statement, key, f"{key} allows everything else", f"write {key[3:]}")
        for action in statement.actions:
            if "*" in action or "?" in action:
                what, way_out = "the action has a wildcard", "name the actions that are used"
                yield _problem(statement, "Action", what, way_out, action)


@rule("E9222", "Policy on every resource")
def exact_resources(assembly: Assembly) -> Iterator[Finding]:
    """A policy names what its actions are about, where the action takes resources."""
    buckets = re.compile(r"arn:[^:]*:s3:::(\*|[^/]*\*[^/]*)(/.*)?")
    for statement in identity_statements(assembly):
        if not statement.allows:
            continue
        wide = [name for name in statement.actions if name.lower() not in WITHOUT_RESOURCES]
        narrowed = bool(statement.condition_keys())
        for arn in statement.resources:
            if buckets.fullmatch(arn) or (EVERYTHING.fullmatch(arn) and wide and not narrowed):
                value = f"{', '.join(wide[:3])} on {display(arn)}"
                way_out = "name ARNs, or narrow it with a Condition"
                what = "the policy is about every resource"
                yield _problem(statement, "Resource", what, way_out, value)
        publishes = "cloudwatch:putmetricdata" in [name.lower() for name in statement.actions]
        if publishes and "cloudwatch:namespace" not in statement.condition_keys():
            what = "metrics may be written into every namespace"
            yield _problem(statement, "Condition", what, "add a condition on cloudwatch:namespace")


@rule("E9223", "Use of every KMS key")
def key_use(assembly: Assembly) -> Iterator[Finding]:
    """A role may use keys by ARN, or by an alias or what they encrypt in a condition."""
    for statement in identity_statements(assembly):
        uses = [name for name in statement.actions if name.lower().startswith("kms:")]
        wild = [arn for arn in statement.resources if arn.endswith(("key/*", ":*")) or arn == "*"]
        narrowed = any(
            key == "kms:resourcealiases" or key.startswith("kms:encryptioncontext:")
            for key in statement.condition_keys()
        )
        if statement.allows and uses and wild and not narrowed:
            what = "the role may use every key"
            way_out = "name the key, or add a condition on kms:ResourceAliases"
            yield _problem(statement, "Condition", what, way_out, wild[0])


@rule("E9224", "iam:PassRole of every role, or to every service")
def pass_role(assembly: Assembly) -> Iterator[Finding]:
    """A role may pass roles that are named, to services that are named."""
    for statement in identity_statements(assembly):
        passes = [name for name in statement.actions if name.lower() == "iam:passrole"]
        if not passes or not statement.allows:
            continue
        for arn in statement.resources:
            if "*" in arn:
                what, way_out = "every role may be passed", "name the role"
                yield _problem(statement, "Resource", what, way_out, arn)
        if "iam:passedtoservice" not in statement.condition_keys():
            what = "the role may be passed to every service"
            yield _problem(statement, "Condition", what, "add a condition on iam:PassedToService")


@resource_rule("E9225", "Managed policy with full access", ROLE)
def managed_policies(identity: Resource) -> Iterator[Finding]:
    """No managed policy gives full access."""
    for arn in texts(identity.properties.get("ManagedPolicyArns")):
        if FULL_ACCESS.search(arn):
            what, way_out = "the managed policy gives full access", "write statements"
            yield identity.problem("ManagedPolicyArns", what, way_out, value=arn)


@resource_rule("E9226", "Role that others than its own account's services may assume", ROLE)
def trust(role: Resource) -> Iterator[Finding]:
    """A role is assumed by services and accounts that are named, for its own account."""
    account = role.template.stack.account
    for statement in trust_statements(role):
        if not statement.allows:
            continue
        anybody = [name for name in statement.principals if name == "*"]
        if anybody and not statement.condition_keys():
            way_out = "name the service or the account"
            yield _problem(statement, "Principal", "anybody may assume it", way_out, "*")
        given = {
            known_text(value)
            for _, key, values in statement.conditions
            if key.lower() == "aws:sourceaccount"
            for value in texts(values)
        }
        own = set(statement.principals) & set(OWN_SERVICES)
        foreign = account is not None and None not in given and given - {account}
        if (own and not statement.condition_keys()) or foreign:
            what = "the service may assume the role for another account"
            way_out = "add a condition on aws:SourceAccount with this account"
            value = ", ".join(filter(None, given)) or "no condition"
            yield _problem(statement, "Condition", what, way_out, value)


@rule("E9227", "Resource policy that is open to others")
def open_resource_policy(assembly: Assembly) -> Iterator[Finding]:
    """A resource's policy lets nobody in whom it does not name, nor another account's services."""
    for statement in resource_statements(assembly):
        account = statement.resource.template.stack.account
        if not statement.allows:
            continue
        network = statement.resource.type == "AWS::EC2::VPCEndpoint"
        conditions = statement.condition_keys()
        for principal in statement.principals:
            match = re.match(r"(?:arn:[^:]*:iam::)?(\d{12})(?::|$)", principal)
            service = principal.endswith(".amazonaws.com")
            open_network = network and not conditions and "*" in statement.resources
            is_role = "aws:principalarn" in conditions
            foreign = match is not None and account not in (None, match[1]) and not is_role
            if (principal == "*" and not conditions and not network) or open_network or foreign:
                what = "others are let in"
                way_out = "name principals of this account, or a role by aws:PrincipalArn"
                yield _problem(statement, "Principal", what, way_out, principal)
            elif service and not conditions & {"aws:sourceaccount", "aws:sourcearn"}:
                what = "the service is let in for every account"
                way_out = "add a condition on aws:SourceAccount"
                yield _problem(statement, "Condition", what, way_out, principal)


def _problem(
    statement: Statement, key: str, what: str, way_out: str, value: str | None = None
) -> Finding:
    sid = known_text(fields(statement.content).get("Sid"))
    path = f"{statement.path}.{key}"
    named = what if sid is None or not is_known(sid) else f"{what} (statement {sid})"
    return statement.resource.problem(path, named, way_out, value=value)
