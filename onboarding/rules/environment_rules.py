"""Environments: a known platform, a known host image, locks inside the repository."""

from __future__ import annotations

from collections.abc import Iterator

from onboarding.fault import Fault
from onboarding.nearest import did_you_mean, listed
from onboarding.platform import host_images, serving_platforms
from onboarding.rules.rule import EnvironmentCase, rule


@rule("platform")
def platform_is_known(case: EnvironmentCase) -> Iterator[Fault]:
    """A platform that has a row, so that its TensorRT is known."""
    name, known = case.spec.platform, serving_platforms()
    if name not in known:
        yield case.document.at("platform").fault(
            "unknown platform", value=name, allowed=listed(known), way_out=did_you_mean(name, known, "choose one of these")
        )


@rule("inference_ami_version")
def host_image_is_known(case: EnvironmentCase) -> Iterator[Fault]:
    """A host image that has a row, so that its driver is known."""
    name, known = case.spec.inference_ami_version, host_images()
    if name is not None and name not in known:
        yield case.document.at("inference_ami_version").fault(
            "unknown host image", value=name, allowed=listed(known), way_out=did_you_mean(name, known, "choose one of these")
        )


@rule("locks")
def locks_lie_inside(case: EnvironmentCase) -> Iterator[Fault]:
    """Locks are part of the repository."""
    if not case.is_inside_root(case.spec.locks):
        yield case.document.at("locks").fault(
            "'locks' lies outside the onboarding root", value=case.spec.locks, way_out="name a folder under it, such as models"
        )


RULES = (platform_is_known, host_image_is_known, locks_lie_inside)
