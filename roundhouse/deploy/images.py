"""The container images of an environment: those missing in its registry, and their build."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from onboarding import names
from onboarding.environment_spec import EnvironmentSpec
from onboarding.fault import Fault, FaultsError
from onboarding.names import IMAGES_ROUTE, builder_project
from onboarding.platform import registry_host, serving_platforms
from roundhouse.aws.clients import or_absent
from roundhouse.deploy.builds import codebuild
from roundhouse.deploy.builds.source import publish_source, zipped
from roundhouse.errors import (
    BuildFailedError,
    DeployFailedError,
)
from roundhouse.session import Session
from stacks.images import (
    ImageOrder,
    base_image,
    image_orders,
    image_tags,
    image_uris,
    needed_images,
    pinned_images,
    read_image_files,
)

PROGRAM = "engine_build/image/images.py"
ORDERS = "images.json"
EVERY_SECONDS = 5.0
NOT_HERE = (
    "The local cloud builds no images: its endpoints and builds run this machine's own "
    "environments in their place "
    "(`make environments`). In AWS, `roundhouse deploy` builds them before anything needs them."
)


@dataclass(frozen=True, kw_only=True)
class ImageState:
    """One image of an environment, and its digest in the registry; None: it is not there."""

    order: ImageOrder
    digest: str | None

    @property
    def is_there(self) -> bool:
        """Return whether the registry holds it."""
        return self.digest is not None

    def as_dict(self, *, built: bool, is_local: bool) -> dict[str, Any]:
        """Return plain JSON; `built`: by this command."""
        state = "not built here" if is_local else "there" if self.is_there else "missing"
        if built and not is_local:
            state = "built"
        return {
            "image": self.order.image,
            "uri": self.order.uri,
            "state": state,
            "digest": self.digest,
        }


def current_orders(session: Session) -> tuple[ImageOrder, ...]:
    """Return the order of every image that the environment's deployments need. Raises FaultsError.

    Each under its content's tag; nothing is asked of AWS.
    """
    environment = session.environment
    platform = serving_platforms()[environment.platform]
    tags = current_image_tags(session.paths.code, environment.platform)
    needed = needed_images(platform, session.deployments(), session.generators())
    try:
        return image_orders(environment, platform, needed, tags)
    except KeyError as error:
        fault = Fault(
            file=f"environments/{environment.name}.yaml",
            what="no registry of AWS's Triton and vLLM images is known in the region",
            value=environment.region,
            way_out="add it to onboarding/data/triton_registries.yaml, or choose a platform whose "
            "images start from NVIDIA's",
        )
        raise FaultsError([fault]) from error


def image_states(session: Session) -> tuple[ImageState, ...]:
    """Return every image that the environment's deployments need, as the registry has it."""
    return tuple(
        ImageState(order=order, digest=None if session.is_local else _order_digest(session, order))
        for order in current_orders(session)
    )


def require_pinned_images(session: Session) -> None:
    """Refuse pinned images that the registry does not have, or has with another digest.

    The local cloud has no images. Raises DeployFailedError with every fault.
    """
    faults = []
    pins = {} if session.is_local else pinned_images(session.deployments())
    for image, pin in pins.items():
        where = f"environments/{session.environment.name}.yaml: images.pinned.{image}"
        repository = names.repository(session.environment, image)
        digest = _digest(session, repository, pin.tag)
        if digest is None:
            faults.append(
                f"{where}: {repository} has no tag {pin.tag}; check out the commit whose image it "
                f"is and run `roundhouse build --images --env {session.environment.name}` there, "
                "or remove the pin"
            )
        elif pin.digest not in (None, digest):
            faults.append(
                f"{where}: {repository}:{pin.tag} has digest {digest}, the file says {pin.digest}; "
                "find out who replaced the image before anything runs it, or correct the file"
            )
    if faults:
        raise DeployFailedError(f"Refused before deploying: {'; '.join(faults)}.")


def current_image_uris(code: Path, spec: EnvironmentSpec) -> dict[str, str]:
    """Return where an environment's endpoints find each image, by the files as they are now."""
    return image_uris(spec, current_image_tags(code, spec.platform))


def current_image_tags(code: Path, platform: str) -> dict[str, str]:
    """Return the tag of each container image by the files as they are now."""
    return image_tags(read_image_files(code), base_image(serving_platforms()[platform]))


def missing(session: Session) -> tuple[ImageOrder, ...]:
    """Return the images that must be built; none in the local cloud, which builds none."""
    if session.is_local:
        return ()
    return tuple(state.order for state in image_states(session) if not state.is_there)


def build_images(session: Session, orders: Sequence[ImageOrder]) -> None:
    """Build and push images, all in one build.

    Raises BuildFailedError with its reason, NotReadyError before the first deploy.
    """
    if not orders:
        return
    title = f"Building {', '.join(order.image for order in orders)} (CodeBuild, some of an hour)"
    with session.report.step(title) as step:
        client = session.clients("codebuild")
        zip_path = publish_source(session, source(session, orders), "the images' sources")
        build_id = codebuild.start(
            client, builder_project(session.environment, IMAGES_ROUTE), zip_path
        )
        try:
            codebuild.follow(
                session.clients, build_id, every_seconds=EVERY_SECONDS, on_line=step.update
            )
        except KeyboardInterrupt:
            codebuild.stop(client, build_id)
            raise
        except BuildFailedError as error:
            raise BuildFailedError(f"Images: {error}") from error
        left = [order.uri for order in orders if _order_digest(session, order) is None]
        if left:
            raise BuildFailedError(
                f"Images: the build ended well, but {', '.join(left)} is not there; build it again."
            )
        step.finish(f"{len(orders)} pushed")


def orders_document(session: Session, orders: Sequence[ImageOrder]) -> dict[str, Any]:
    """Return the document that the program in the build reads."""
    region = session.environment.region
    bases = [value for order in orders for value in order.arguments.values()]
    registries = {value.split("/")[0] for value in bases if ".dkr.ecr." in value}
    registries.add(registry_host(session.environment.account, region))
    images = [asdict(order) for order in orders]
    return {"region": region, "registries": sorted(registries), "images": images}


def source(session: Session, orders: Sequence[ImageOrder]) -> bytes:
    """Return the source: the files that the tags are digests of, the program, and its orders."""
    image_files = read_image_files(session.paths.code)
    files = {path: data for order in orders for path, data in image_files[order.image].items()}
    program = (session.paths.code / PROGRAM).read_bytes()
    document = json.dumps(orders_document(session, orders), indent=2, sort_keys=True).encode()
    return zipped({**files, PROGRAM: program, ORDERS: document})


def _order_digest(session: Session, order: ImageOrder) -> str | None:
    return _digest(session, order.repository, order.tag)


def _digest(session: Session, repository: str, tag: str) -> str | None:
    """Return the digest of an image in the registry; None: it is not there."""
    found = or_absent(
        lambda: session.clients("ecr").describe_images(
            repositoryName=repository, imageIds=[{"imageTag": tag}]
        )["imageDetails"],
        f"Looking for {repository}:{tag}",
    )
    # A registry beside AWS's, as a cloud on a laptop is, may list none in place of refusing.
    return str(found[0]["imageDigest"]) if found else None
