"""Endpoints of TensorRT engines: of one model with its variants, or of many models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from aws_cdk.aws_sagemaker import CfnEndpointConfig, CfnModel
from constructs import Construct

from onboarding import arns, names
from onboarding.deployment import VARIANT
from onboarding.environment_spec import EnvironmentSpec
from onboarding.hosting_spec import AsynchronousSpec, MetricsSpec
from roundhouse_cdk.hosting import (
    ContainerProps,
    EndpointProps,
    HostedEndpoint,
    deployment_config,
    image_pull,
)
from roundhouse_cdk.statements import Permissions, Statements

MOST_NAMED_ENGINES = 37
"""IAM takes 10,240 characters of a role's own policies; an archive's name takes 96 of them."""
MOST_NAMED_OF_A_VERSION = 20
"""During a rollout the policies of two versions stand beside the role."""
OWN_MODEL = "Model"


@dataclass(frozen=True, kw_only=True)
class PoolProps:
    """One instance type of a variant, and what its instances run.

    `priority`: 1 is tried first. `model_id`: of its model; default: by variant and position.
    """

    instance_type: str
    container: ContainerProps
    priority: int = 1
    model_id: str | None = None


@dataclass(frozen=True, kw_only=True)
class VariantProps:
    """Instances that answer alike: `count` of them in a new endpoint, at least one.

    Seconds that SageMaker waits for the download, for the start, and, of several pools, for
    instances of a type. `ami_version`: of GPU hosts; default: SageMaker's. A shadow gets copies of
    requests, and its answers go nowhere.
    """

    pools: Sequence[PoolProps]
    name: str = VARIANT
    count: int = 1
    weight: float = 1.0
    is_shadow: bool = False
    download_seconds: int = 300
    start_up_seconds: int = 480
    provision_seconds: int = 1800
    ami_version: str | None = None


@dataclass(frozen=True, kw_only=True)
class RealtimeEndpointProps(EndpointProps):
    """`capture_percent` of the requests are kept. With `asynchronous`, requests wait in a queue.

    What `metrics` leaves out is left to SageMaker. Requests, answers and captures lie in the
    environment's bucket in any case. `engines` are those of a `MultiModelEndpoint`: paths of their
    archives in the endpoint's bucket.
    """

    variants: Sequence[VariantProps]
    capture_percent: int | None = None
    metrics: MetricsSpec | None = None
    asynchronous: AsynchronousSpec | None = None
    engines: Sequence[str] | None = None


class RealtimeEndpoint(HostedEndpoint):
    """Deploys an endpoint of one model: variants, shadows, instance pools, a queue if asked for."""

    _props: RealtimeEndpointProps

    def __init__(
        self, scope: Construct, construct_id: str, *, props: RealtimeEndpointProps
    ) -> None:
        super().__init__(scope, construct_id, props)
        self._check_variants()
        self._add_role(role_statements(props), version_statements(props))
        self._add_endpoint(self._config_content(), deployment_config(props.rollout))
        self.config.node.add_dependency(*self.models.values())

    def _check_variants(self) -> None:
        """Raise ValueError for variants that SageMaker refuses together."""
        props = self._props
        production = [variant.name for variant in props.variants if not variant.is_shadow]
        given = ", ".join(variant.name for variant in props.variants) or "none"
        if not production or any(not variant.pools for variant in props.variants):
            self._refuse(
                f"variants with instances: {given}; allowed: one production variant or more, each"
                " with a pool; add one"
            )
        if props.asynchronous is not None and len(props.variants) > 1:
            self._refuse(
                f"variants of an asynchronous endpoint: {given}; allowed: one production variant;"
                " take the others out, or `asynchronous`"
            )
        if len({variant.name for variant in props.variants}) < len(props.variants):
            self._refuse(f"names of variants: {given}; allowed: different ones; rename one")
        if props.asynchronous is not None and props.engines is not None:
            self._refuse(
                f"a multi-model endpoint cannot be asynchronous: {props.name}; allowed: requests"
                " that are answered at once; take `asynchronous` out"
            )

    def _config_content(self) -> dict[str, Any]:
        """Return the config's typed properties, but for its name."""
        props, environment, metrics = self._props, self._spec, self._props.metrics
        shadows, own = (
            [self._variant(variant) for variant in props.variants if variant.is_shadow == is_shadow]
            for is_shadow in (True, False)
        )
        return {
            "production_variants": own,
            "shadow_production_variants": shadows or None,
            "data_capture_config": _data_capture(environment, props.capture_percent),
            "async_inference_config": _async_inference(environment, props.name, props.asynchronous),
            "metrics_config": None
            if metrics is None
            else CfnEndpointConfig.MetricsConfigProperty(
                enable_enhanced_metrics=False, enable_detailed_observability=metrics.detailed
            ),
            "kms_key_id": arns.key_id(environment),
        }

    def _variant(self, variant: VariantProps) -> CfnEndpointConfig.ProductionVariantProperty:
        """Return one production or shadow variant, and add its models."""
        models = self._variant_models(variant)
        several, pools = len(variant.pools) > 1, None
        if several:
            pools = [
                CfnEndpointConfig.InstancePoolProperty(
                    instance_type=pool.instance_type,
                    priority=pool.priority,
                    model_name_override=None if model is models[0] else model.model_name,
                )
                for pool, model in zip(variant.pools, models, strict=True)
            ]
        # Instance pools demand it. A multi-model endpoint routes a target to the instance that has
        # it loaded, a queue to any.
        is_routed = several or (self._props.engines is None and self._props.asynchronous is None)
        strategy = CfnEndpointConfig.RoutingConfigProperty(
            routing_strategy="LEAST_OUTSTANDING_REQUESTS"
        )
        weight = variant.weight
        return CfnEndpointConfig.ProductionVariantProperty(
            variant_name=variant.name,
            model_name=models[0].model_name,
            instance_type=None if several else variant.pools[0].instance_type,
            instance_pools=pools,
            variant_instance_provision_timeout_in_seconds=variant.provision_seconds
            if several
            else None,
            initial_instance_count=variant.count,
            initial_variant_weight=int(weight) if float(weight).is_integer() else weight,
            model_data_download_timeout_in_seconds=variant.download_seconds,
            container_startup_health_check_timeout_in_seconds=variant.start_up_seconds,
            inference_ami_version=variant.ami_version,
            routing_config=strategy if is_routed else None,
        )

    def _variant_models(self, variant: VariantProps) -> list[CfnModel]:
        """Add the models of a variant's pools, in their order; equal containers share one."""
        models: list[CfnModel] = []
        for number, pool in enumerate(variant.pools):
            same = [i for i in range(number) if variant.pools[i].container == pool.container]
            models.append(models[same[0]] if same else self._engine_model(variant, number))
        return models

    def _engine_model(self, variant: VariantProps, number: int) -> CfnModel:
        """Add the model of a pool.

        Its id is content, but for the first model: a model that moves to another id, as when two
        pools change places, is made before the old one of that content is deleted, and must not be
        called the same.
        """
        pool = variant.pools[number]
        plain = f"{variant.name}{OWN_MODEL}{number}" if self.models else OWN_MODEL
        construct_id = plain if pool.model_id is None else pool.model_id
        return self._add_model(
            construct_id,
            pool.container,
            {} if construct_id == OWN_MODEL else {"LogicalId": construct_id},
            mode="SingleModel" if self._props.engines is None else "MultiModel",
            model_data_url=f"s3://{self._bucket}/{pool.container.path}",
        )


class MultiModelEndpoint(RealtimeEndpoint):
    """Deploys an endpoint of many models, `props.engines`, each loaded when a request names it.

    Containers' paths are the prefix that these lie under. Engines come and go without a rollout.
    """


def role_statements(props: RealtimeEndpointProps) -> Statements:
    """Return what the role may do with data, of whatever version.

    Read the archives of a multi-model endpoint's engines and the requests of a queue; write what
    SageMaker writes in the name of the role, under this endpoint's own prefixes.
    """
    environment, name, queue = props.environment, props.name, props.asynchronous
    may = Permissions(environment)
    read = [] if props.bucket else list(_named(props.engines or (), MOST_NAMED_ENGINES))
    written = []
    if queue is not None:
        read.append(f"{names.requests_prefix(environment, name)}/*")
    if props.capture_percent is not None:
        written.append(f"{names.captures_prefix(environment, name)}/*")
    if queue is not None:
        written.append(f"{names.answers_prefix(environment, name)}/*")
    notified = queue is not None and queue.notify
    return (
        *([may.read(read)] if read else []),
        may.list_bucket(),
        *([may.write(written)] if written else []),
        may.use_key(writes=bool(written)),
        *(may.publish(arns.answer_topic(environment)) if notified else ()),
    )


def version_statements(props: RealtimeEndpointProps) -> Statements:
    """Return what an instance of this version must have to start: images, and its archives."""
    environment = props.environment
    containers = [pool.container for variant in props.variants for pool in variant.pools]
    images = image_pull(environment, [container.image_uri for container in containers])
    if props.engines is not None or props.bucket is not None:
        return (images,)
    archives = _named([container.path for container in containers], MOST_NAMED_OF_A_VERSION)
    return (images, Permissions(environment).read(archives, "ReadEngines"))


def _named(paths: Sequence[str], most: int) -> tuple[str, ...]:
    """Return every path once, or all archives where they are too many to name."""
    archives = tuple(dict.fromkeys(paths))
    return archives if len(archives) <= most else (f"{names.ENGINES_PREFIX}/*",)


def _data_capture(
    environment: EnvironmentSpec, percent: int | None
) -> CfnEndpointConfig.DataCaptureConfigProperty | None:
    if percent is None:
        return None
    return CfnEndpointConfig.DataCaptureConfigProperty(
        enable_capture=True,
        initial_sampling_percentage=percent,
        destination_s3_uri=f"s3://{names.artifact_bucket(environment)}/{names.CAPTURES_PREFIX}",
        kms_key_id=arns.key_id(environment),
        capture_options=[
            CfnEndpointConfig.CaptureOptionProperty(capture_mode=mode)
            for mode in ("Input", "Output")
        ],
        capture_content_type_header=CfnEndpointConfig.CaptureContentTypeHeaderProperty(
            json_content_types=["application/json"]
        ),
    )


def _async_inference(
    environment: EnvironmentSpec, name: str, queue: AsynchronousSpec | None
) -> CfnEndpointConfig.AsyncInferenceConfigProperty | None:
    if queue is None:
        return None
    prefix, topic = names.answers_prefix(environment, name), arns.answer_topic(environment)
    answers = f"s3://{names.artifact_bucket(environment)}/{prefix}"
    notified, client = None, None
    if queue.notify:
        notified = CfnEndpointConfig.AsyncInferenceNotificationConfigProperty(
            success_topic=topic, error_topic=topic
        )
    if queue.max_concurrent_invocations is not None:
        client = CfnEndpointConfig.AsyncInferenceClientConfigProperty(
            max_concurrent_invocations_per_instance=queue.max_concurrent_invocations
        )
    return CfnEndpointConfig.AsyncInferenceConfigProperty(
        output_config=CfnEndpointConfig.AsyncInferenceOutputConfigProperty(
            s3_output_path=f"{answers}/answered",
            s3_failure_path=f"{answers}/failed",
            kms_key_id=arns.key_id(environment),
            notification_config=notified,
        ),
        client_config=client,
    )
