"""The container images of an environment: which its registry lacks, and their build in CodeBuild."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from onboarding.fault import Fault, FaultsError
from onboarding.names import builder_project
from onboarding.platform import serving_platforms
from roundhouse.aws.clients import calling
from roundhouse.builds import codebuild
from roundhouse.builds.source import publish_source
from roundhouse.builds.source_zip import zipped
from roundhouse.errors import BuildFailed
from roundhouse.road import Road
from stacks.images.builds import ImageOrder, base_image, image_orders, needed_images, registry
from stacks.images.project import ROUTE
from stacks.images.tag import image_tags, read_image_files

PROGRAM = "engine_build/image/images.py"
ORDERS = "images.json"
ABSENT = ("ImageNotFoundException", "RepositoryNotFoundException")
EVERY_SECONDS = 5.0

NOT_HERE = (
    "The local cloud builds no images: its endpoints and builds run this machine's own environments in their place "
    "(`make environments`). In AWS, `roundhouse deploy` builds them before anything needs them."
)


@dataclass(frozen=True, kw_only=True)
class ImageState:
    """One image of an environment, and whether its registry holds it."""

    order: ImageOrder
    is_there: bool

    def as_dict(self, *, built: bool, is_local: bool) -> dict[str, Any]:
        """Plain JSON; `built`: by this command."""
        return {
            "image": self.order.image,
            "uri": self.order.uri,
            "state": self.state(built=built, is_local=is_local),
        }

    def state(self, *, built: bool, is_local: bool) -> str:
        """One of "not built here", "built", "there", "missing"."""
        if is_local:
            return "not built here"
        return "built" if built else "there" if self.is_there else "missing"


def image_states(road: Road) -> tuple[ImageState, ...]:
    """Every image that the environment's deployments need, under the tag of its content as it is
    now. Raises FaultsError.
    """
    platform = serving_platforms()[road.environment.platform]
    tags = image_tags(read_image_files(road.places.code), base_image(platform))
    try:
        orders = image_orders(
            road.environment, platform, needed_images(platform, road.deployments()), tags
        )
    except KeyError as error:
        raise FaultsError([_no_registry(road)]) from error
    return tuple(
        ImageState(order=order, is_there=not road.is_local and _is_there(road, order))
        for order in orders
    )


def missing(road: Road) -> tuple[ImageOrder, ...]:
    """The images that must be built; none in the local cloud, which builds none."""
    return (
        ()
        if road.is_local
        else tuple(state.order for state in image_states(road) if not state.is_there)
    )


def build_images(road: Road, orders: Sequence[ImageOrder]) -> None:
    """Builds and pushes images, all in one build.

    Raises BuildFailed with its reason, DeskError before the first deploy.
    """
    if not orders:
        return
    title = f"Building {', '.join(order.image for order in orders)} (CodeBuild, some of an hour)"
    with road.report.step(title) as step:
        order = codebuild.BuildOrder(
            project=builder_project(road.environment, ROUTE),
            source=publish_source(road, source(road, orders), "the images' sources"),
            variables={},
        )
        build_id = codebuild.start(road.clients("codebuild"), order)
        try:
            codebuild.follow(
                road.clients,
                build_id,
                codebuild.Follower(every_seconds=EVERY_SECONDS, on_line=step.update),
            )
        except KeyboardInterrupt:
            codebuild.stop(road.clients("codebuild"), build_id)
            raise
        except BuildFailed as error:
            raise BuildFailed(f"Images: {error}") from error
        left = [order.uri for order in orders if not _is_there(road, order)]
        if left:
            raise BuildFailed(
                f"Images: the build ended well, but {', '.join(left)} is not there; build it again."
            )
        step.done(f"{len(orders)} pushed")


def orders_document(road: Road, orders: Sequence[ImageOrder]) -> dict[str, Any]:
    """What the program in the build is given."""
    own = registry(road.environment.account, road.environment.region)
    bases = [value for order in orders for value in order.arguments.values()]
    registries = {own} | {value.split("/")[0] for value in bases if ".dkr.ecr." in value}
    images = [order.as_dict() for order in orders]
    return {"region": road.environment.region, "registries": sorted(registries), "images": images}


def source(road: Road, orders: Sequence[ImageOrder]) -> bytes:
    """The build's source: exactly the files that the tags are digests of, the program, and its
    orders.
    """
    held = read_image_files(road.places.code)
    files = {path: data for order in orders for path, data in held[order.image].items()}
    program = (road.places.code / PROGRAM).read_bytes()
    document = json.dumps(orders_document(road, orders), indent=2, sort_keys=True).encode()
    return zipped({**files, PROGRAM: program, ORDERS: document})


def _is_there(road: Road, order: ImageOrder) -> bool:
    from botocore.exceptions import ClientError

    with calling(f"Looking for {order.uri}"):
        try:
            road.clients("ecr").describe_images(
                repositoryName=order.repository, imageIds=[{"imageTag": order.tag}]
            )
        except ClientError as error:
            if error.response.get("Error", {}).get("Code") in ABSENT:
                return False
            raise
    return True


def _no_registry(road: Road) -> Fault:
    file, region = f"environments/{road.environment.name}.yaml", road.environment.region
    way_out = "add it to onboarding/data/triton_registries.yaml, or choose a platform whose images start from NVIDIA's"
    return Fault(
        file=file,
        what="no registry of AWS's Triton image is known in the region",
        value=region,
        way_out=way_out,
    )
