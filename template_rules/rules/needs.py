"""What a role must be allowed for an endpoint, a build or a state machine that uses it.

Sources: SageMaker developer guide, "SageMaker AI roles" (CreateModel, CreateTrainingJob); CodeBuild
user guide, "Allow CodeBuild to interact with other services"; Step Functions developer guide,
"How Step Functions generates IAM policies for integrated services".
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from template_rules.policies import ROLE, Statement, is_allowed, role_statements
from template_rules.rules.alarms import KEY, TOPIC, key_of
from template_rules.templates import Assembly, Finding, Resource
from template_rules.values import display, texts

PULL = ("ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer")
PUSH = ("ecr:CompleteLayerUpload", "ecr:InitiateLayerUpload", "ecr:PutImage", "ecr:UploadLayerPart")
DESCRIBE_NETWORK = (
    "ec2:DescribeDhcpOptions",
    "ec2:DescribeNetworkInterfaces",
    "ec2:DescribeSecurityGroups",
    "ec2:DescribeSubnets",
    "ec2:DescribeVpcs",
)
ATTACH_NETWORK = (
    "ec2:CreateNetworkInterface",
    "ec2:CreateNetworkInterfacePermission",
    "ec2:DeleteNetworkInterface",
)
IMAGE = re.compile(
    r"(?P<account>[^.]+)\.dkr\.ecr\.(?P<region>[^.]+)\.amazonaws\.com(\.cn)?/(?P<name>[^:@]+).*"
)


@dataclass(frozen=True, kw_only=True)
class Need:
    """One action that a role must be allowed on a resource, and the reason."""

    action: str
    arn: str
    reason: str
    context: Mapping[str, object] = field(default_factory=dict)
    under: bool = False
    """Whether being allowed on something under the ARN's prefix is enough."""

    @property
    def text(self) -> str:
        """Return the need for a message."""
        via = self.context.get("kms:ViaService")
        through = "" if via is None else f" through {via}"
        return f"{self.action} on {display(self.arn)}{through}"


@dataclass(frozen=True, kw_only=True)
class Place:
    """Partition, region and account of a resource's stack, with the assembly to look into."""

    assembly: Assembly
    resource: Resource

    def arn(self, service: str, rest: str, *, account: str | None = None) -> str:
        """Return an ARN of the stack's region and account."""
        stack = self.resource.template.stack
        region = stack.region or "\0AWS::Region\0"
        own = stack.account or "\0AWS::AccountId\0"
        return f"arn:{self.partition}:{service}:{region}:{account or own}:{rest}"

    @property
    def partition(self) -> str:
        """Return the partition of the stack's region."""
        return str(self.resource.template.resolver.resolve({"Ref": "AWS::Partition"}))

    def via(self, service: str) -> str:
        """Return the value of kms:ViaService for a service of the stack's region."""
        region = self.resource.template.resolver.resolve({"Ref": "AWS::Region"})
        return f"{service}.{region}.amazonaws.com"

    def image(self, uri: object, reason: str) -> Iterator[Need]:
        """Yield what pulling an image from ECR needs."""
        match = IMAGE.fullmatch(str(uri))
        if match is not None:
            yield Need(action="ecr:GetAuthorizationToken", arn="*", reason=reason)
            name, region, account = match["name"], match["region"], match["account"]
            arn = f"arn:{self.partition}:ecr:{region}:{account}:repository/{name}"
            for action in PULL:
                yield Need(action=action, arn=arn, reason=reason)

    def objects(
        self, uri: object, *, read: bool, reason: str, key: object = None, under: bool = False
    ) -> Iterator[Need]:
        """Yield what reading or writing objects under an S3 URI needs, with their key."""
        if not isinstance(uri, str) or not uri.startswith("s3://"):
            return
        path = uri.removeprefix("s3://")
        bucket_name = path.split("/")[0]
        arn = f"arn:{self.partition}:s3:::{path}"
        action = "s3:GetObject" if read else "s3:PutObject"
        yield Need(action=action, arn=arn, reason=reason, under=under)
        if read:
            bucket_arn = f"arn:{self.partition}:s3:::{bucket_name}"
            yield Need(action="s3:ListBucket", arn=bucket_arn, reason=reason)
        used = key if key is not None else self._bucket_key(bucket_name)
        operations = ("kms:Decrypt",) if read else ("kms:GenerateDataKey", "kms:Decrypt")
        yield from self.key(used, operations, "s3", reason)

    def _bucket_key(self, name: str) -> object:
        bucket = self.assembly.find(name, "AWS::S3::Bucket")
        rules = (
            ()
            if bucket is None
            else bucket.at("BucketEncryption.ServerSideEncryptionConfiguration")
        )
        for rule in rules if isinstance(rules, list) else ():
            key: object = rule.get("ServerSideEncryptionByDefault", {}).get("KMSMasterKeyID")
            return key
        return None

    def key(
        self, value: object, actions: tuple[str, ...], service: str | None, reason: str
    ) -> Iterator[Need]:
        """Yield what using a KMS key needs; nothing for a key that no template knows."""
        if not isinstance(value, str) or "alias/aws/" in value:
            return
        key = key_of(self.assembly, value)
        found = [
            alias.name
            for alias in self.assembly.of_type("AWS::KMS::Alias")
            if key is not None
            and self.assembly.find(alias.properties.get("TargetKeyId"), KEY) is key
        ]
        alias = re.search(r"alias/[^:]+$", value)
        aliases = [*found, *([alias.group()] if alias and not found else [])]
        arn = (
            value if value.startswith("arn:") and alias is None else self.arn("kms", "key/\0key\0")
        )
        context: dict[str, object] = {"kms:ResourceAliases": aliases}
        if service is not None:
            context["kms:ViaService"] = self.via(service)
        for action in actions:
            own = str(key.arn) if key is not None else arn
            yield Need(action=action, arn=own, reason=reason, context=context)

    def topic(self, arn: object, reason: str) -> Iterator[Need]:
        """Yield what publishing to a topic needs, with its key."""
        if not isinstance(arn, str):
            return
        yield Need(action="sns:Publish", arn=arn, reason=reason)
        topic = self.assembly.find(arn, TOPIC)
        if topic is not None:
            actions = ("kms:Decrypt", "kms:GenerateDataKey")
            yield from self.key(topic.properties.get("KmsMasterKeyId"), actions, "sns", reason)

    def network(self, config: object, reason: str, *, hosts: bool = True) -> Iterator[Need]:
        """Yield what network interfaces in the subnets and groups of a VpcConfig need."""
        if not isinstance(config, dict):
            return
        for action in DESCRIBE_NETWORK:
            yield Need(action=action, arn="*", reason=reason)
        arns = [self.arn("ec2", "network-interface/*")]
        arns += [self.arn("ec2", f"subnet/{name}") for name in texts(config.get("Subnets"))]
        groups = texts(config.get("SecurityGroupIds"))
        arns += [self.arn("ec2", f"security-group/{name}") for name in groups]
        release = ("ec2:DeleteNetworkInterfacePermission",) if hosts else ()
        builds = {"ec2:Subnet": arns[1:2], "ec2:AuthorizedService": "codebuild.amazonaws.com"}
        handed: dict[str, object] = {} if hosts else {**builds}
        for action in (*ATTACH_NETWORK, *release):
            for arn in arns if action == "ec2:CreateNetworkInterface" else arns[:1]:
                context = handed if action == "ec2:CreateNetworkInterfacePermission" else {}
                yield Need(action=action, arn=arn, reason=reason, context=context)

    def logs(self, group: str, *, reason: str) -> Iterator[Need]:
        """Yield what writing into a log group needs: to make it too, where no template does."""
        own = self.arn("logs", f"log-group:{group}")
        stream = f"{own}:log-stream:\0stream\0"
        if self.assembly.find(group, "AWS::Logs::LogGroup") is None:
            yield Need(action="logs:CreateLogGroup", arn=own, reason=reason)
        for action in ("logs:CreateLogStream", "logs:PutLogEvents"):
            yield Need(action=action, arn=stream, reason=reason)


def lacking_actions(
    assembly: Assembly, user: Resource, path: str, needs: list[Need], role: Resource | None = None
) -> Iterator[Finding]:
    """Yield the actions that a role lacks, one finding a reason."""
    found = role or assembly.find(user.properties.get(path), ROLE)
    if found is None:
        return
    granted = role_statements(assembly, found)
    lacking: dict[str, list[str]] = {}
    for need in needs:
        context = {"aws:SecureTransport": "true", **need.context}
        if not _is_met(granted, need, context):
            lacking.setdefault(need.reason, []).append(need.text)
    for reason, missing in lacking.items():
        what = f"role {found.logical_id} lacks what it needs {reason}"
        value = ", ".join(missing[:4])
        yield user.problem(path, what, "allow it in the role's policy", value=value)


def _is_met(granted: list[Statement], need: Need, context: dict[str, object]) -> bool:
    if is_allowed(granted, need.action, need.arn, context):
        return True
    prefix = need.arn.rstrip("*")
    inside = (arn for item in granted for arn in item.resources if arn.startswith(prefix))
    return need.under and any(is_allowed(granted, need.action, arn, context) for arn in inside)
