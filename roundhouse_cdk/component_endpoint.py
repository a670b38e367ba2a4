"""Endpoints whose model runs in copies of an inference component, which scale to zero.

A component's own rollout replaces its copies, so that another model changes nothing of the
endpoint. SageMaker reads a container's /metrics on port 8080 by itself where detailed observability
is on (API reference, ContainerMetricsConfig), which is where ours are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from aws_cdk import Aws, CfnCondition, CfnParameter, Fn
from aws_cdk.aws_sagemaker import CfnEndpointConfig, CfnInferenceComponent, CfnModel
from constructs import Construct

from onboarding import arns, names
from onboarding.deployment import VARIANT
from onboarding.text_generation.spec import Routing
from roundhouse_cdk.hosting import (
    ContainerProps,
    EndpointProps,
    HostedEndpoint,
    RolloutProps,
    image_pull,
    spelled,
)
from roundhouse_cdk.statements import Permissions, Statements, allow

STRATEGIES: Mapping[Routing, str] = {
    "least-outstanding": "LEAST_OUTSTANDING_REQUESTS",
    "random": "RANDOM",
    "prefix-aware": "PREFIX_AWARE",
}
Component = CfnInferenceComponent


@dataclass(frozen=True, kw_only=True)
class ComponentProps:
    """The copies of a model that share an endpoint's instances.

    `copies` that a new component begins with, each with `gpus` whole GPUs, or `cpu_cores` where
    that is 0, and `memory_mib` of the host; instances come and go between `least_instances` and
    `most_instances`.
    """

    gpus: int
    memory_mib: int
    cpu_cores: int | None = None
    copies: int = 1
    least_instances: int = 1
    most_instances: int = 1


@dataclass(frozen=True, kw_only=True)
class ComponentEndpointProps(EndpointProps):
    """`plan` counts as the model's content. `instances` of a new endpoint.

    Seconds that SageMaker waits for the download and for the start. `rollout`: its step, waits and
    alarms, all of batches of copies, whose number `is_scaled` is about.
    """

    container: ContainerProps
    instance_type: str
    component: ComponentProps
    instances: int = 1
    plan: str | None = None
    routing: Routing = "least-outstanding"
    download_seconds: int = 3600
    start_up_seconds: int = 3600
    ami_version: str | None = None
    detailed_metrics: bool = True


class ComponentEndpoint(HostedEndpoint):
    """Deploys one model, such as an embedder, whose instances come and go with its requests.

    `component` is what answers. Raises ValueError for what AWS refuses.
    """

    _props: ComponentEndpointProps

    def __init__(
        self, scope: Construct, construct_id: str, *, props: ComponentEndpointProps
    ) -> None:
        super().__init__(scope, construct_id, props)
        version = version_statements(props, self._adapter_paths())
        self._add_role(role_statements(props), version, ("Endpoints", "InferenceComponents"))
        self.model = self._component_model()
        self._add_endpoint(self._config_content(), None, self.role.role_arn)
        self.component = self._component()

    def _adapter_paths(self) -> Collection[str]:
        """Return the archives that copies load beside their model."""
        return ()

    def _component_model(self) -> CfnModel:
        """An archive is unpacked; the files below a prefix, which their content names, are not."""
        props = self._props
        uri = f"s3://{self._bucket}/{props.container.path}"
        data: dict[str, Any] = {"model_data_url": uri}
        if is_prefix(props.container):
            files = CfnModel.S3DataSourceProperty(
                s3_uri=uri, s3_data_type="S3Prefix", compression_type="None"
            )
            data = {"model_data_source": CfnModel.ModelDataSourceProperty(s3_data_source=files)}
        identity = {} if props.plan is None else {"Plan": props.plan}
        return self._add_model("Model", props.container, identity, **data)

    def _config_content(self) -> dict[str, Any]:
        """Return the config's typed properties; it names no model."""
        props, component = self._props, self._props.component
        variant = CfnEndpointConfig.ProductionVariantProperty(
            variant_name=VARIANT,
            instance_type=props.instance_type,
            initial_instance_count=props.instances,
            inference_ami_version=props.ami_version,
            routing_config=CfnEndpointConfig.RoutingConfigProperty(
                routing_strategy=STRATEGIES[props.routing]
            ),
            managed_instance_scaling=CfnEndpointConfig.ManagedInstanceScalingProperty(
                status="ENABLED",
                min_instance_count=component.least_instances,
                max_instance_count=component.most_instances,
            ),
        )
        return {
            "production_variants": [variant],
            "metrics_config": CfnEndpointConfig.MetricsConfigProperty(
                enable_detailed_observability=props.detailed_metrics
            ),
            "kms_key_id": arns.key_id(self._spec),
            "enable_network_isolation": props.network_isolation,
            "vpc_config": self._vpc_config(CfnEndpointConfig.VpcConfigProperty),
        }

    def _component(self) -> Component:
        """Add the base component, whose number of copies later updates leave to scaling."""
        props, component = self._props, self._props.component
        runtime: Any = Component.InferenceComponentRuntimeConfigProperty(
            copy_count=component.copies
        )
        if props.is_scaled:
            runtime = self._unless_retained(runtime)
        base = Component(
            self,
            "InferenceComponent",
            inference_component_name=self.endpoint_name,
            endpoint_name=self.endpoint_name,
            variant_name=VARIANT,
            specification=Component.InferenceComponentSpecificationProperty(
                model_name=self.model.model_name,
                compute_resource_requirements=(
                    Component.InferenceComponentComputeResourceRequirementsProperty(
                        number_of_accelerator_devices_required=component.gpus or None,
                        number_of_cpu_cores_required=component.cpu_cores,
                        min_memory_required_in_mb=component.memory_mib,
                    )
                ),
                startup_parameters=Component.InferenceComponentStartupParametersProperty(
                    model_data_download_timeout_in_seconds=props.download_seconds,
                    container_startup_health_check_timeout_in_seconds=props.start_up_seconds,
                ),
            ),
            runtime_config=runtime,
            deployment_config=_component_rollout(props.rollout),
        )
        base.node.add_dependency(self.endpoint, self.model, *self.log_groups)
        return base

    def _unless_retained(self, runtime: Any) -> Any:
        """Return a property that an update leaves out, once its parameter says so."""
        given = CfnParameter(
            self,
            names.RETAINED_COPIES,
            type="String",
            default="false",
            allowed_values=["false", "true"],
            description="Updates keep the number of copies",
        )
        is_set = Fn.condition_equals(given.value_as_string, "false")
        condition = CfnCondition(self, "CopyCountIsSet", expression=is_set)
        value = spelled(self._stack.resolve(runtime))
        return Fn.condition_if(condition.logical_id, value, Aws.NO_VALUE)


@dataclass(frozen=True, kw_only=True)
class TextGenerationEndpointProps(ComponentEndpointProps):
    """A text generator: the container's path is the checkpoint's prefix in the bucket.

    `adapters`: paths of LoRA archives by name.
    """

    adapters: Mapping[str, str] = field(default_factory=dict)


class TextGenerationEndpoint(ComponentEndpoint):
    """Deploys a text generator; `adapters` are the components of LoRA adapters by name."""

    _props: TextGenerationEndpointProps

    def __init__(
        self, scope: Construct, construct_id: str, *, props: TextGenerationEndpointProps
    ) -> None:
        super().__init__(scope, construct_id, props=props)
        self.adapters = {name: self._adapter(name, path) for name, path in props.adapters.items()}

    def _adapter_paths(self) -> Collection[str]:
        return self._props.adapters.values()

    def _adapter(self, name: str, path: str) -> Component:
        """Add the component of a LoRA adapter, which runs in the copies of the base."""
        adapter = Component(
            self,
            f"Adapter{hashlib.sha256(name.encode()).hexdigest()[:8]}",
            inference_component_name=names.adapter_component(self._spec, self._props.name, name),
            endpoint_name=self.endpoint_name,
            specification=Component.InferenceComponentSpecificationProperty(
                base_inference_component_name=self.endpoint_name,
                container=Component.InferenceComponentContainerSpecificationProperty(
                    artifact_url=f"s3://{self._bucket}/{path}"
                ),
            ),
        )
        adapter.node.add_dependency(self.component)
        return adapter


def _component_rollout(
    rollout: RolloutProps,
) -> Component.InferenceComponentDeploymentConfigProperty:
    """Return a component's rollout in batches of one size both ways."""
    batch = Component.InferenceComponentCapacitySizeProperty(
        type="CAPACITY_PERCENT", value=rollout.step_percent
    )
    alarms = [Component.AlarmProperty(alarm_name=name) for name in rollout.alarm_names]
    rolled_back = Component.AutoRollbackConfigurationProperty(alarms=alarms) if alarms else None
    return Component.InferenceComponentDeploymentConfigProperty(
        rolling_update_policy=Component.InferenceComponentRollingUpdatePolicyProperty(
            maximum_batch_size=batch,
            rollback_maximum_batch_size=batch,
            wait_interval_in_seconds=rollout.wait_seconds,
            maximum_execution_timeout_in_seconds=rollout.execution_seconds,
        ),
        auto_rollback_configuration=rolled_back,
    )


def is_prefix(container: ContainerProps) -> bool:
    """Return True where a container loads the files below a path, and no archive."""
    return container.path.endswith("/")


def role_statements(props: ComponentEndpointProps) -> Statements:
    """Return what the role may do with data, of whatever version."""
    may, bucket = Permissions(props.environment), [arns.bucket(props.environment)]
    located = allow("LocateBucket", "s3:GetBucketLocation", bucket)
    listing = located if is_prefix(props.container) else may.list_bucket()
    return (listing, may.use_key(writes=False))


def version_statements(props: ComponentEndpointProps, adapters: Collection[str]) -> Statements:
    """Return what a copy of this version must have to start: its image and its model."""
    environment, path = props.environment, props.container.path
    may, image = Permissions(environment), image_pull(environment, [props.container.image_uri])
    if props.bucket is not None:
        return (image,)
    if not is_prefix(props.container):
        return (image, may.read([path], "ReadEngines"))
    listed = {"StringLike": {"s3:prefix": [f"{path}*"]}}
    return (
        image,
        may.read([f"{path}*", *adapters], "ReadCheckpoint"),
        allow("ListCheckpoint", "s3:ListBucket", [arns.bucket(environment)], listed),
    )
