"""Builds and pushes the container images in CodeBuild."""

from __future__ import annotations

from roundhouse.acceptance.assumptions import Assumption, Place
from roundhouse.acceptance.setup import Setup
from roundhouse.acceptance.steps.step import AcceptanceContext, AcceptanceStep, no_builder
from roundhouse.deploy.images import build_images, image_states, missing


def assumptions(setup: Setup) -> tuple[Assumption, ...]:
    """Return that every image of the environment is built and pushed."""
    return (
        Assumption(
            name="images.pushed",
            says="CodeBuild builds every Dockerfile and ECR takes the images",
            expected="every image is in its repository",
            place=Place.aws,
        ),
    )


def run(context: AcceptanceContext) -> str:
    """Build what is missing and record what the registry holds."""
    if context.setup.in_local_cloud:
        return "no image is built in the local cloud: environments of this machine stand for them"
    try:
        build_images(context.session, missing(context.session))
    finally:
        states = image_states(context.session)
        rows = [state.as_dict(built=False, is_local=False) for state in states]
        context.evidence.write_json("images.json", rows)
        absent = [state.order.image for state in states if not state.is_there]
        found = f"missing: {', '.join(absent)}" if absent else "every image is in its repository"
        context.findings.record("images.pushed", found)
    return f"{len(states)} images"


IMAGES = AcceptanceStep(
    name="images",
    title="Building the images (CodeBuild, some of an hour)",
    limit_minutes=90,
    assumptions=assumptions,
    run=run,
    obstacle=no_builder,
)
