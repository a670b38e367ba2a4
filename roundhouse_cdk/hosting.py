"""What endpoints of every kind have: a role, models, an endpoint config, the endpoint, their log.

What a version needs to start, its images and archives, stands in a policy of its own beside the
role, under an id of its content. While a rollout is under way instances of both versions may have
to start, those of the old one when it is taken back: CloudFormation makes the new policy before the
endpoint's update, and deletes the old one after it.

Models and configs are named by their content: an endpoint's update begins where its config has
another name, and `roundhouse plan`, `deploy` and `status` tell by it what runs.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeVar

from aws_cdk import Stack, Token
from aws_cdk import aws_cloudwatch as cw
from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs
from aws_cdk import aws_s3 as s3
from aws_cdk.aws_sagemaker import (
    CfnEndpoint,
    CfnEndpointConfig,
    CfnEndpointConfigProps,
    CfnModel,
    CfnModelProps,
)
from constructs import Construct

from onboarding import arns, names
from onboarding.aws_limits import (
    ENVIRONMENT_VARIABLE_COUNT,
    NAME_LENGTH,
    ROLLBACK_ALARM_COUNT,
    STEP_PERCENT,
)
from onboarding.deployment import VARIANT
from onboarding.environment_spec import EnvironmentSpec
from onboarding.metrics import INVOCATIONS
from onboarding.values import Rollout
from roundhouse_cdk.build_project import add_log_group
from roundhouse_cdk.exact_role import ExactRole, add_metadata
from roundhouse_cdk.statements import (
    HOST_METRICS,
    PULL,
    REGISTRY_LOG_IN,
    Permissions,
    Statement,
    allow,
)

T = TypeVar("T")
DIGITS = 8
LEAST_SUBNETS = 2
"""In two zones: SageMaker spreads instances over them, and one zone may fail."""
REGISTRY = re.compile(r"(?P<account>[0-9]{12})\.dkr\.ecr\.(?P<region>[a-z0-9-]+)\.")


@dataclass(frozen=True, kw_only=True)
class ContainerProps:
    """What one SageMaker model runs: an image of ECR, and the variables of its container.

    `path` is what it loads, in the endpoint's bucket: an archive, or a prefix that ends in a slash.
    """

    image_uri: str
    path: str
    variables: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class RolloutProps:
    """How a new version takes over, and the alarms that take it back, by name, ten at most.

    `step_percent` of a fleet changes at once, in a canary, linear or rolling rollout. Seconds: from
    one step to the next, how long the old fleet stays, and when the update is given up.
    """

    kind: Rollout = "all-at-once"
    step_percent: int = 50
    wait_seconds: int = 300
    termination_seconds: int = 300
    execution_seconds: int = 28800
    alarm_names: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class EndpointProps:
    """What every endpoint has: a `name` in an environment, whose bucket, key and registry it uses.

    `is_scaled`: something moves its counts, and updates keep them. `bucket`: of what containers
    load, which the role may read; default: the environment's.
    """

    environment: EnvironmentSpec
    name: str
    rollout: RolloutProps = RolloutProps()
    is_scaled: bool = False
    network_isolation: bool = True
    bucket: s3.IBucket | None = None


class HostedEndpoint(Construct):
    """The base of endpoint constructs: `role`, `models`, `config`, `endpoint`, `log_groups`.

    `models`, and `supports`, which are role, version's policy and log groups, are by their ids.
    Raises ValueError, with the construct's path, for what AWS refuses.
    """

    role: iam.Role
    config: CfnEndpointConfig
    endpoint: CfnEndpoint
    _props: EndpointProps

    def __init__(self, scope: Construct, construct_id: str, props: EndpointProps) -> None:
        super().__init__(scope, construct_id)
        environment, bucket = props.environment, props.bucket
        self._props, self._spec, self._stack = props, environment, Stack.of(self)
        self._bucket = names.artifact_bucket(environment) if bucket is None else bucket.bucket_name
        self.endpoint_name = names.endpoint_name(environment, props.name)
        self.models: dict[str, CfnModel] = {}
        self.supports: dict[str, iam.Role | iam.Policy | logs.LogGroup] = {}
        self.log_groups: list[logs.LogGroup] = []
        self._check_rollout(props.rollout)
        network = environment.network
        if network is not None and len(set(network.subnet_ids)) < LEAST_SUBNETS:
            self._refuse(
                f"its network has one subnet, so one zone: {network.subnet_ids[0]}; allowed:"
                f" {LEAST_SUBNETS} subnets or more; name a subnet of another zone too"
            )

    def grant_invoke(self, grantee: iam.IGrantable) -> iam.Grant:
        """Let a principal send requests."""
        return iam.Grant.add_to_principal(
            grantee=grantee,
            actions=[
                "sagemaker:InvokeEndpoint",
                "sagemaker:InvokeEndpointAsync",
                "sagemaker:InvokeEndpointWithResponseStream",
            ],
            resource_arns=[self.endpoint.ref],
        )

    def metric(self, name: str, statistic: str = "Average", *, variant: str = VARIANT) -> cw.Metric:
        """Return a metric of SageMaker's that is about a variant, such as `ModelLatency`."""
        dimensions = {"EndpointName": self.endpoint_name, "VariantName": variant}
        return cw.Metric(
            namespace=INVOCATIONS, metric_name=name, dimensions_map=dimensions, statistic=statistic
        )

    def _refuse(self, fault: str) -> NoReturn:
        raise ValueError(f"{self.node.path}: {fault}")

    def _check_rollout(self, rollout: RolloutProps) -> None:
        bounds, step = STEP_PERCENT.get(rollout.kind), rollout.step_percent
        if bounds is not None and not bounds.least <= step <= bounds.most:
            self._refuse(
                f"step of a {rollout.kind} rollout: {step} %; allowed: {bounds.least} to"
                f" {bounds.most} %; change step_percent"
            )
        found = list(rollout.alarm_names)
        if len(found) > ROLLBACK_ALARM_COUNT or len(set(found)) < len(found):
            self._refuse(
                f"alarms that take an update back: {', '.join(found)}; allowed:"
                f" {ROLLBACK_ALARM_COUNT} different ones at most; keep the gravest"
            )

    def _add_role(
        self,
        statements: Sequence[Statement],
        version: Sequence[Statement],
        logged: Sequence[str] = ("Endpoints",),
    ) -> None:
        """Add the role with its own statements, and the policy of what a version needs to start.

        Before them the log groups that SageMaker writes, of the kinds that are `logged`.
        """
        environment, alarm_names = self._spec, self._props.rollout.alarm_names
        may = Permissions(environment)
        paths = [f"/aws/sagemaker/{kind}/{self.endpoint_name}" for kind in logged]
        for kind, path in zip(logged, paths, strict=True):
            construct_id = f"{kind if self.log_groups else ''}Logs"
            group = add_log_group(self, construct_id, path, environment)
            self.supports[construct_id] = group
            self.log_groups.append(group)
        # IAM knows a group by the ARN that ends in `:*` too. Source: CloudWatch Logs user guide,
        # "Overview of managing access permissions".
        groups = [arns.log_group(environment, path) for path in paths]
        written = [resource for arn in groups for resource in (arn, f"{arn}:*")]
        alarms = [arns.arn(environment, "cloudwatch", f"alarm:{name}") for name in alarm_names]
        own = [
            REGISTRY_LOG_IN,
            *statements,
            *may.grant_volume_key(),
            allow("WriteLogs", "logs:CreateLogStream DescribeLogStreams PutLogEvents", written),
            HOST_METRICS,
            *([allow("LookAtAlarms", "cloudwatch:DescribeAlarms", alarms)] if alarms else []),
            *may.attach_network(),
        ]
        self.role = self.supports["Role"] = ExactRole(
            self, "Role", environment=environment, trusts="sagemaker", statements=own
        )
        document = {"Version": "2012-10-17", "Statement": list(version)}
        digest = hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()[:DIGITS]
        policy_id = f"VersionPolicy{digest}"
        self._version_policy = self.supports[policy_id] = iam.Policy(
            self,
            policy_id,
            policy_name=f"version-{digest}",
            roles=[self.role],
            document=iam.PolicyDocument.from_json(document),
        )
        add_metadata(self._version_policy, version)
        if self._props.bucket is not None:
            # And its key's, if it has one of its own.
            self._props.bucket.grant_read(self.role)

    def _add_model(
        self, construct_id: str, container: ContainerProps, identity: Mapping[str, Any], **data: Any
    ) -> CfnModel:
        """Add a model whose name its content gives, and `identity`; `data`: how it is loaded.

        The role is no part of it: its logical id stays, and its statements change in place.
        """
        variables = container.variables
        if "Ref" in variables:
            self._refuse(
                "variable of a container: Ref; allowed: any other name; rename it: CloudFormation"
                " takes Ref for a reference"
            )
        if len(variables) > ENVIRONMENT_VARIABLE_COUNT:
            self._refuse(
                f"variables of a container: {len(variables)}; allowed:"
                f" {ENVIRONMENT_VARIABLE_COUNT} at most; take some out"
            )
        content: dict[str, Any] = {
            "primary_container": CfnModel.ContainerDefinitionProperty(
                image=container.image_uri, environment=dict(variables), **data
            ),
            "enable_network_isolation": self._props.network_isolation,
            "vpc_config": self._vpc_config(CfnModel.VpcConfigProperty),
        }
        model = CfnModel(
            self,
            construct_id,
            model_name=self._content_name(CfnModelProps(**content), identity),
            execution_role_arn=self.role.role_arn,
            **content,
        )
        # Waiting is no property: another policy alone makes no other model.
        model.node.add_dependency(self._version_policy)
        self.models[construct_id] = model
        return model

    def _add_endpoint(
        self,
        content: Mapping[str, Any],
        rollout: CfnEndpoint.DeploymentConfigProperty | None,
        execution_role_arn: str | None = None,
    ) -> None:
        """Add the endpoint, and its config of these typed properties.

        The config's name covers the rollout: SageMaker takes another one with another endpoint
        config only. Where the instance counts of variants move, an update keeps them; it takes the
        template's weights all the same, and what is captured: SageMaker retains no capture config
        (API_VariantProperty). Those of an endpoint without a rollout are its component's.
        """
        name = self._content_name(CfnEndpointConfigProps(**content), {"DeploymentConfig": rollout})
        self.config = CfnEndpointConfig(
            self,
            "EndpointConfig",
            endpoint_config_name=name,
            execution_role_arn=execution_role_arn,
            **content,
        )
        is_scaled = self._props.is_scaled and rollout is not None
        weight = CfnEndpoint.VariantPropertyProperty(variant_property_type="DesiredWeight")
        self.endpoint = CfnEndpoint(
            self,
            "Endpoint",
            endpoint_name=self.endpoint_name,
            endpoint_config_name=name,
            deployment_config=rollout,
            retain_all_variant_properties=True if is_scaled else None,
            exclude_retained_variant_properties=[weight] if is_scaled else None,
        )
        # With what users grant to the role, too.
        self.endpoint.node.add_dependency(self.config, self.role, *self.log_groups)

    def _content_name(self, content: Any, identity: Mapping[str, Any]) -> str:
        """Return a name by typed properties, and by more properties of whatever type."""
        properties, more = spelled(self._stack.resolve([content, dict(identity)]))
        return content_name(self.endpoint_name, {**properties, **dict.fromkeys(identity), **more})

    def _vpc_config(self, kind: Callable[..., T]) -> T | None:
        """Return the environment's network as a property of this kind, if it has one."""
        network = self._spec.network
        if network is None:
            return None
        subnets, groups = list(network.subnet_ids), list(network.security_group_ids)
        return kind(subnets=subnets, security_group_ids=groups)


def deployment_config(rollout: RolloutProps) -> CfnEndpoint.DeploymentConfigProperty:
    """Return an endpoint's rollout as the CDK's typed properties."""
    size = CfnEndpoint.CapacitySizeProperty(type="CAPACITY_PERCENT", value=rollout.step_percent)
    alarms = [CfnEndpoint.AlarmProperty(alarm_name=name) for name in rollout.alarm_names]
    rolled_back = CfnEndpoint.AutoRollbackConfigProperty(alarms=alarms) if alarms else None
    if rollout.kind == "rolling":
        return CfnEndpoint.DeploymentConfigProperty(
            auto_rollback_configuration=rolled_back,
            # By default a rollback replaces all at once.
            rolling_update_policy=CfnEndpoint.RollingUpdatePolicyProperty(
                maximum_batch_size=size,
                rollback_maximum_batch_size=size,
                wait_interval_in_seconds=rollout.wait_seconds,
                maximum_execution_timeout_in_seconds=rollout.execution_seconds,
            ),
        )
    return CfnEndpoint.DeploymentConfigProperty(
        auto_rollback_configuration=rolled_back,
        blue_green_update_policy=CfnEndpoint.BlueGreenUpdatePolicyProperty(
            traffic_routing_configuration=CfnEndpoint.TrafficRoutingConfigProperty(
                type=rollout.kind.replace("-", "_").upper(),
                wait_interval_in_seconds=rollout.wait_seconds,
                canary_size=size if rollout.kind == "canary" else None,
                linear_step_size=size if rollout.kind == "linear" else None,
            ),
            termination_wait_in_seconds=rollout.termination_seconds,
            maximum_execution_timeout_in_seconds=rollout.execution_seconds,
        ),
    )


def content_name(prefix: str, properties: Mapping[str, Any]) -> str:
    """A SageMaker name.

    The prefix, trimmed to fit, and 12 hex digits of the sha256 of the properties as canonical JSON.
    A prefix that had to be trimmed counts as content, so that two that begin alike never share a
    name.
    """
    available = NAME_LENGTH - names.CONTENT_DIGITS - 1
    text = json.dumps(properties, sort_keys=True, separators=(",", ":"))
    digest = hashlib.sha256(
        (text if len(prefix) <= available else prefix + text).encode()
    ).hexdigest()[: names.CONTENT_DIGITS]
    return f"{prefix[:available].rstrip('-')}-{digest}"


def image_pull(environment: EnvironmentSpec, uris: Sequence[str]) -> Statement:
    """Return the statement to pull these images, each from the registry that its URI names."""
    repositories = dict.fromkeys(_repository(environment, uri) for uri in uris)
    return allow("PullImage", PULL, list(repositories))


def _repository(environment: EnvironmentSpec, uri: str) -> str:
    if Token.is_unresolved(uri):
        return arns.arn(environment, "ecr", "repository/*")
    host, _, reference = uri.partition("/")
    name = re.split("[@:]", reference)[0]
    arn = arns.arn(environment, "ecr", f"repository/{name}")
    match = REGISTRY.match(host)
    if match is None:
        return arn
    return arn.replace(
        f":{environment.region}:{environment.account}:", f":{match['region']}:{match['account']}:"
    )


def spelled(value: Any, key: str = "") -> Any:
    """Return resolved properties as CloudFormation spells them; names of variables stay."""
    if isinstance(value, list):
        return [spelled(item) for item in value]
    if not isinstance(value, dict) or key == "Environment":
        return value
    named = ((name[:1].upper() + name[1:], item) for name, item in value.items())
    return {name: spelled(item, name) for name, item in named}
