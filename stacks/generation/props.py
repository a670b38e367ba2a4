"""From a text generator's deployment to the props of its endpoint's construct."""

from __future__ import annotations

import math
from collections.abc import Mapping

from onboarding import names
from onboarding.aws_limits import DOWNLOAD_SECONDS
from onboarding.text_generation.checkpoint_key import checkpoint_prefix
from onboarding.text_generation.generation_deployment import GenerationDeployment
from roundhouse_cdk.hosting import ContainerProps, RolloutProps
from roundhouse_cdk.text_generation_endpoint import ComponentProps, TextGenerationEndpointProps
from stacks.generation import sizes
from stacks.generation.alarms import rollback_alarm_names
from stacks.generation.properties import environment_variables
from stacks.images import generation_image
from stacks.rollout import TERMINATION_SECONDS, WAIT_SECONDS


def generation_props(
    deployment: GenerationDeployment, image_uris: Mapping[str, str]
) -> TextGenerationEndpointProps:
    """Return the props of a deployment without `generation_faults`."""
    assert deployment.entry is not None
    endpoint, first = deployment.spec.endpoint, sizes.first_copies(deployment)
    return TextGenerationEndpointProps(
        environment=deployment.environment,
        name=deployment.name,
        container=ContainerProps(
            image_uri=image_uris[generation_image(deployment.platform)],
            path=checkpoint_prefix(deployment.entry.checkpoint_key),
            variables=environment_variables(deployment),
        ),
        plan=deployment.plan_key,
        instance_type=deployment.candidate.instance_type,
        instances=sizes.instances_for(deployment, first),
        component=_component(deployment, first) if sizes.is_component(deployment) else None,
        adapters={
            adapter.name: names.adapter_path(deployment.adapters[adapter.name])
            for adapter in deployment.spec.serving.adapters
        },
        routing=endpoint.routing,
        rollout=_rollout(deployment),
        is_scaled=sizes.scales(deployment),
        download_seconds=DOWNLOAD_SECONDS.most,
        start_up_seconds=endpoint.start_up_seconds,
        ami_version=deployment.inference_ami_version,
    )


def _component(deployment: GenerationDeployment, copies: int) -> ComponentProps:
    return ComponentProps(
        gpus=deployment.candidate.tensor_parallel,
        memory_mib=sizes.memory_mib(deployment),
        copies=copies,
        least_instances=sizes.least_instances(deployment),
        most_instances=sizes.most_instances(deployment),
    )


def _rollout(deployment: GenerationDeployment) -> RolloutProps:
    """A component's copies are replaced in batches, and instances all at once."""
    is_component, percent = sizes.is_component(deployment), sizes.batch_percent(deployment)
    steps = math.ceil(100 / percent) if is_component else 1
    return RolloutProps(
        kind="rolling" if is_component else "all-at-once",
        step_percent=percent,
        wait_seconds=WAIT_SECONDS,
        termination_seconds=TERMINATION_SECONDS,
        execution_seconds=sizes.update_seconds(deployment, steps),
        alarm_names=rollback_alarm_names(deployment),
    )
