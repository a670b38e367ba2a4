"""From a deployment to the props of its endpoint's construct, and the outputs of its stack."""

from __future__ import annotations

import math
from collections.abc import Mapping

from onboarding import names
from onboarding.aws_limits import DOWNLOAD_SECONDS, ROLLBACK_ALARM_COUNT
from onboarding.deployment import VARIANT, Deployment, Pool, Variant
from onboarding.model_spec import RepositorySpec
from onboarding.serve_environment import (
    python_server_environment,
    serve_environment,
    signers_environment,
)
from onboarding.text_generation.checkpoint_key import checkpoint_prefix
from onboarding.text_generation.generation_deployment import GenerationDeployment
from onboarding.triton_repository import repository_models
from onboarding.values import Server
from roundhouse_cdk.component_endpoint import (
    ComponentEndpointProps,
    ComponentProps,
    TextGenerationEndpointProps,
)
from roundhouse_cdk.hosting import ContainerProps, RolloutProps
from roundhouse_cdk.realtime_endpoint import PoolProps, RealtimeEndpointProps, VariantProps
from stacks import generation_capacity as sizes
from stacks.alarms import endpoint_alarms, rollback_alarms
from stacks.images import endpoint_image_uri, generation_image, serving_image
from stacks.rollout import (
    PROVISION_SECONDS,
    TERMINATION_SECONDS,
    WAIT_SECONDS,
    effective_rollout,
    execution_seconds,
    initial_count,
    step_percent,
    variant_timeouts,
)
from stacks.scaling import most, named_id, scaled_variants

HOST_MEMORY_SHARE = 0.6
"""Of an instance that a copy asks for: a second one has no room beside it."""


def endpoint_props(deployment: Deployment, image_uris: Mapping[str, str]) -> RealtimeEndpointProps:
    """Return the props of a deployment without `endpoint_faults`.

    `image_uris` names every image that it may run.
    """
    endpoint, engines = deployment.endpoint, None
    if deployment.multi_model:
        engines = [names.engine_archive_path(target.engine_key) for target in deployment.targets]
    return RealtimeEndpointProps(
        environment=deployment.environment,
        name=deployment.name,
        variants=[_variant(deployment, variant, image_uris) for variant in deployment.variants],
        rollout=rollout_props(deployment),
        is_scaled=bool(scaled_variants(deployment)),
        network_isolation=endpoint.network_isolation,
        capture_percent=None if endpoint.data_capture is None else endpoint.data_capture.percent,
        metrics=endpoint.metrics,
        asynchronous=endpoint.asynchronous,
        engines=engines,
    )


def component_props(
    deployment: Deployment, image_uris: Mapping[str, str]
) -> ComponentEndpointProps:
    """Return the props of a deployment that scales to zero, without `endpoint_faults`.

    A copy takes all GPUs of its instance, or all cores but one and most memory.
    """
    variant, endpoint, first = deployment.own, deployment.endpoint, initial_count(deployment.own)
    (pool,), row, copies = variant.pools, variant.instance_type, most(variant)
    memory = None if row.memory_gib is None else row.memory_gib * sizes.MIB_A_GIB
    download, start_up = variant_timeouts(deployment, variant)
    metrics = endpoint.metrics
    return ComponentEndpointProps(
        environment=deployment.environment,
        name=deployment.name,
        container=container_props(deployment, variant.server, pool, image_uris),
        instance_type=row.name,
        instances=first,
        component=ComponentProps(
            gpus=row.gpu_count,
            cpu_cores=None if row.vcpus is None else max(1, row.vcpus - 1),
            memory_mib=sizes.MEMORY_MIB if memory is None else int(memory * HOST_MEMORY_SHARE),
            copies=first,
            least_instances=variant.scaling.fewest,
            # A batch of an update runs beside the old copies.
            most_instances=copies + math.ceil(copies * step_percent(deployment) / 100),
        ),
        rollout=rollout_props(deployment),
        is_scaled=bool(scaled_variants(deployment)),
        download_seconds=download,
        start_up_seconds=start_up,
        ami_version=deployment.inference_ami_version,
        network_isolation=endpoint.network_isolation,
        detailed_metrics=metrics is None or metrics.detailed is not False,
    )


def rollout_props(deployment: Deployment | GenerationDeployment) -> RolloutProps:
    """Return how a deployment is updated, and by which alarms an update is taken back."""
    watched = rollback_alarms(endpoint_alarms(deployment))[:ROLLBACK_ALARM_COUNT]
    return RolloutProps(
        kind=effective_rollout(deployment),
        step_percent=step_percent(deployment),
        wait_seconds=WAIT_SECONDS,
        termination_seconds=TERMINATION_SECONDS,
        execution_seconds=(
            sizes.update_seconds(deployment)
            if isinstance(deployment, GenerationDeployment)
            else execution_seconds(deployment)
        ),
        alarm_names=tuple(alarm.name for alarm in watched),
    )


def _variant(
    deployment: Deployment, variant: Variant, image_uris: Mapping[str, str]
) -> VariantProps:
    download, start_up = variant_timeouts(deployment, variant)
    return VariantProps(
        name=variant.name,
        is_shadow=variant.role == "shadow",
        count=initial_count(variant),
        weight=variant.weight,
        download_seconds=download,
        start_up_seconds=start_up,
        provision_seconds=PROVISION_SECONDS,
        ami_version=deployment.inference_ami_version if variant.instance_type.is_gpu else None,
        pools=[
            PoolProps(
                instance_type=pool.instance_type.name,
                priority=pool.priority,
                container=container_props(deployment, variant.server, pool, image_uris),
                model_id=_model_id(variant, pool),
            )
            for pool in variant.pools
        ],
    )


def container_props(
    deployment: Deployment, server: Server, pool: Pool, image_uris: Mapping[str, str]
) -> ContainerProps:
    """Return what the instances of a pool run: one engine, or whichever a request names."""
    uri = endpoint_image_uri(deployment, serving_image(server, pool), image_uris)
    if deployment.multi_model:
        variables = _variables(deployment, server, pool, None)
        return ContainerProps(image_uri=uri, path=f"{names.ENGINES_PREFIX}/", variables=variables)
    (target,) = pool.targets
    assert target.lock_entry is not None
    pinned = {"ROUNDHOUSE_MANIFEST_SHA256": target.lock_entry.archive.manifest_sha256}
    return ContainerProps(
        image_uri=uri,
        path=names.engine_archive_path(target.engine_key),
        variables={**pinned, **_variables(deployment, server, pool, target.model.name)},
    )


def _model_id(variant: Variant, pool: Pool) -> str:
    """The first pool's never changes; that of a further pool holds its instance type."""
    if pool is variant.pools[0]:
        return named_id(variant.name, "Model")
    family, size = pool.instance_type.name.removeprefix("ml.").split(".")
    suffix = "" if variant.name == VARIANT else named_id(variant.name, "Of")
    return f"PoolModel{family[:1].upper()}{family[1:]}{size[:1].upper()}{size[1:]}{suffix}"


def _variables(
    deployment: Deployment, server: Server, pool: Pool, model: str | None
) -> dict[str, str]:
    """Return the variables of the server; no model is a multi-model endpoint."""
    signers = signers_environment(deployment.environment.trusted_signers)
    asynchronous = deployment.endpoint.asynchronous is not None
    if server != "triton":
        slots = None if model is None else pool.targets[0].model.serving.slots
        return python_server_environment(asynchronous=asynchronous, slots=slots) | signers
    targets = [target for owner in pool.targets for target in (*owner.steps, owner)]
    models, metrics = [target.model for target in targets], deployment.endpoint.metrics
    engines = [model.engine for model in models if pool.instance_type.is_gpu]
    variables = serve_environment(
        model,
        version_compatible=any(engine.version_compatible for engine in engines),
        plugins=list(dict.fromkeys(plugin.name for item in engines for plugin in item.plugins)),
        # Of repositories of the user's own, beside the one that clients ask.
        other_models=[
            name
            for target in pool.targets
            if isinstance(target.model, RepositorySpec) and target.lock_entry is not None
            for name in repository_models(target.lock_entry.manifest)
            if name != target.model.name
        ],
        response_cache=any(model.serving.response_cache for model in models),
        asynchronous=asynchronous,
        metrics=metrics is not None and metrics.detailed is True,
    )
    return variables | signers


def generation_props(
    deployment: GenerationDeployment, image_uris: Mapping[str, str]
) -> TextGenerationEndpointProps:
    """Return the props of a deployment without `endpoint_faults`."""
    assert deployment.entry is not None
    endpoint, first = deployment.spec.endpoint, sizes.first_copies(deployment)
    return TextGenerationEndpointProps(
        environment=deployment.environment,
        name=deployment.name,
        container=ContainerProps(
            image_uri=image_uris[generation_image(deployment.platform)],
            path=checkpoint_prefix(deployment.entry.checkpoint_key),
            variables=sizes.environment_variables(deployment),
        ),
        plan=deployment.plan_key,
        instance_type=deployment.candidate.instance_type,
        instances=sizes.instances_for(deployment, first),
        component=ComponentProps(
            gpus=deployment.candidate.tensor_parallel,
            memory_mib=sizes.memory_mib(deployment),
            copies=first,
            least_instances=sizes.instances_for(deployment, endpoint.copies.min),
            most_instances=sizes.most_instances(deployment),
        ),
        adapters={
            adapter.name: names.adapter_path(deployment.adapters[adapter.name])
            for adapter in deployment.spec.serving.adapters
        },
        routing=endpoint.routing,
        rollout=rollout_props(deployment),
        is_scaled=sizes.scales(deployment),
        download_seconds=DOWNLOAD_SECONDS.most,
        start_up_seconds=endpoint.start_up_seconds,
        ami_version=deployment.inference_ami_version,
    )


def endpoint_outputs(deployment: Deployment) -> dict[str, str]:
    """Outputs of an endpoint's stack beside its name: target models, and where its data lies."""
    environment, endpoint = deployment.environment, deployment.endpoint
    values: dict[str, str] = {}
    if deployment.multi_model:
        for target in deployment.targets:
            output = named_id(target.model.name, "TargetModel")
            values[output] = names.target_model(target.engine_key)
    prefixes = []
    if endpoint.asynchronous is not None:
        prefixes += [("Requests", names.requests_prefix), ("Answers", names.answers_prefix)]
    if endpoint.data_capture is not None:
        prefixes.append(("Captures", names.captures_prefix))
    bucket = names.artifact_bucket(environment)
    for noun, prefix in prefixes:
        values[f"{noun}Prefix"] = f"s3://{bucket}/{prefix(environment, deployment.name)}/"
    return values
