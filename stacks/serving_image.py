"""The image that answers, by server and by what the instance computes on."""

from __future__ import annotations

from onboarding.deployment import Deployment


def serving_image(deployment: Deployment) -> str:
    """The name of a deployment's image."""
    if deployment.server == "triton":
        return "triton"
    return "python-server-gpu" if deployment.instance_type.is_gpu else "python-server"
