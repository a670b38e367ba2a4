"""What an environment puts together: endpoints on its platform, engines on their endpoints' hardware."""

from __future__ import annotations

from collections.abc import Iterator

from onboarding.model_spec import EndpointSpec, ModelSpec
from onboarding.platform import InstanceType, ServingPlatform, instance_types, serving_platforms
from onboarding.resolved import Resolved, own_endpoint, shared_endpoint_name
from onboarding.rules.rule import EngineCase, PlacementCase
from onboarding.validation import Checked


def placements(view: Resolved) -> Iterator[PlacementCase]:
    """Every endpoint of an environment whose instance type and platform are known."""
    platform = _platform(view)
    if platform is None:
        return
    for model in view.models.values():
        instance = _instance(own_endpoint(model))
        if instance is not None:
            yield PlacementCase(
                environment=view.environment.spec,
                environment_document=view.environment.document,
                platform=platform,
                instance=instance,
                document=model.document,
                instance_path=("endpoint", "instance_type"),
                server=model.spec.serving.server if "serving" in model.sections else "triton",
                server_path=("serving", "server"),
                multi_model=False,
            )
    for endpoint in view.endpoints.values():
        instance = _instance(endpoint)
        if instance is not None:
            yield PlacementCase(
                environment=view.environment.spec,
                environment_document=view.environment.document,
                platform=platform,
                instance=instance,
                document=endpoint.document,
                instance_path=("instance_type",),
                server=endpoint.spec.server if "server" in endpoint.sections else "triton",
                server_path=("server",),
                multi_model=True,
            )


def engine_cases(view: Resolved) -> Iterator[tuple[Checked[ModelSpec], EngineCase]]:
    """Every model of an environment whose endpoint's instance type and platform are known."""
    platform = _platform(view)
    if platform is None:
        return
    for model in view.models.values():
        shared = shared_endpoint_name(model)
        instance = _instance(own_endpoint(model) if shared is None else view.endpoints.get(shared))
        if instance is not None:
            yield model, EngineCase(spec=model.spec, document=model.document, platform=platform, instance=instance)


def _platform(view: Resolved) -> ServingPlatform | None:
    return serving_platforms().get(view.environment.spec.platform) if "platform" in view.environment.sections else None


def _instance(endpoint: Checked[EndpointSpec] | None) -> InstanceType | None:
    if endpoint is None or "instance_type" not in endpoint.sections:
        return None
    return instance_types().get(endpoint.spec.instance_type)
