"""The image that answers, by server and by what the instance computes on."""

from __future__ import annotations

from onboarding.deployment import Deployment
from onboarding.platform import InstanceType
from onboarding.values import Server


def serving_image(server: Server, instance: InstanceType) -> str:
    """The name of the image that one instance type runs."""
    if server == "triton":
        return "triton"
    return "python-server-gpu" if instance.is_gpu else "python-server"


def serving_images(deployment: Deployment) -> tuple[str, ...]:
    """Every image of an endpoint, once: variants on a CPU and on a GPU may run different ones."""
    pools = [pool for variant in deployment.variants for pool in variant.pools]
    return tuple(
        dict.fromkeys(serving_image(deployment.server, pool.instance_type) for pool in pools)
    )
