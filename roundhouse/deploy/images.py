"""The container images of an environment: those missing in its registry, and their build."""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import yaml

from onboarding import names
from onboarding.environment_spec import ImagePinSpec, ServingImage
from onboarding.fault import Fault, FaultsError
from onboarding.names import IMAGES_ROUTE, builder_project
from onboarding.platform import registry_host, serving_platforms
from roundhouse.aws.clients import calling
from roundhouse.deploy.builds import codebuild
from roundhouse.deploy.builds.source import publish_source, zipped
from roundhouse.errors import (
    BuildFailedError,
    DeployFailedError,
    NotReadyError,
    RoundhouseError,
)
from roundhouse.session import Session
from stacks.images import (
    FROM_PLATFORM,
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
ABSENT = ("ImageNotFoundException", "RepositoryNotFoundException")
EVERY_SECONDS = 5.0
NOT_HERE = (
    "The local cloud builds no images: its endpoints and builds run this machine's own "
    "environments in their place "
    "(`make environments`). In AWS, `roundhouse deploy` builds them before anything needs them."
)
SPECIFICATION = "1.6"
REQUIREMENT = re.compile(
    r"^(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[^]]*\])?==(?P<version>[^\s;\\]+)"
    r"(?P<rest>(?:[^\n]*\\\n)*[^\n]*)",
    re.MULTILINE,
)
HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
BASE_ARGUMENTS = ("TRITON_IMAGE", "BASE_IMAGE")
"""Build arguments that name the image which an image starts from."""
BINDINGS = "requirements/bindings-"


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


def write_sboms(session: Session) -> tuple[Path, ...]:
    """Write the bill of materials of every image below build/sbom, and return the files."""
    files = read_image_files(session.paths.code)
    folder = session.paths.build / "sbom" / session.environment.name
    written = []
    for order in current_orders(session):
        path = folder / f"{order.image}.cdx.json"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            path.write_bytes(image_sbom(order, files[order.image]))
        except OSError as error:
            raise NotReadyError(
                f"{path}: cannot be written ({error.strerror}); free the folder, then try again."
            ) from error
        written.append(path)
    return tuple(written)


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


def pin_block(session: Session, states: Sequence[ImageState]) -> str:
    """Return the lines of an environment file that pin serving images as the registry has them.

    Raises RoundhouseError where it lacks one.
    """
    serving = [state for state in states if state.order.image in get_args(ServingImage)]
    if absent := [state.order.uri for state in serving if not state.is_there]:
        raise RoundhouseError(
            f"{', '.join(absent)}: is not in the registry, so it cannot be pinned; `roundhouse "
            f"images --env {session.environment.name}` builds it."
        )
    pinned = {
        state.order.image: ImagePinSpec(
            tag=state.order.tag,
            digest=state.digest,
            platform=session.environment.platform if state.order.image in FROM_PLATFORM else None,
        ).model_dump(exclude_none=True)
        for state in serving
    }
    return yaml.safe_dump({"images": {"pinned": pinned}}, sort_keys=False, width=120)


def environment_image_uris(session: Session) -> dict[str, str]:
    """Return where the environment's endpoints find each image, by the files as they are now."""
    tags = current_image_tags(session.paths.code, session.environment.platform)
    return image_uris(session.environment, tags)


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
        digests = [(order, _order_digest(session, order)) for order in orders]
        left = [order.uri for order, digest in digests if digest is None]
        if left:
            raise BuildFailedError(
                f"Images: the build ended well, but {', '.join(left)} is not there; build it again."
            )
        _publish_sboms(session, digests)
        step.finish(f"{len(orders)} pushed")


def _publish_sboms(session: Session, digests: Iterable[tuple[ImageOrder, str | None]]) -> None:
    """Put the bill of materials of each image that was built into the environment's bucket."""
    s3, bucket = session.clients("s3"), names.artifact_bucket(session.environment)
    files = read_image_files(session.paths.code)
    for order, digest in digests:
        key = names.image_sbom_path(order.image, order.tag)
        with calling(f"Publishing s3://{bucket}/{key}"):
            s3.put_object(
                Bucket=bucket, Key=key, Body=image_sbom(order, files[order.image], digest)
            )


def orders_document(session: Session, orders: Sequence[ImageOrder]) -> dict[str, Any]:
    """Return the document that the program in the build reads."""
    region = session.environment.region
    bases = [value for order in orders for value in order.arguments.values()]
    registries = {value.split("/")[0] for value in bases if ".dkr.ecr." in value}
    registries.add(registry_host(session.environment.account, region))
    images = [order.as_dict() for order in orders]
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
    from botocore.exceptions import ClientError

    with calling(f"Looking for {repository}:{tag}"):
        try:
            found = session.clients("ecr").describe_images(
                repositoryName=repository, imageIds=[{"imageTag": tag}]
            )
        except ClientError as error:
            if error.response.get("Error", {}).get("Code") in ABSENT:
                return None
            raise
        # A registry beside AWS's, as a cloud on a laptop is, may list none in place of refusing.
        details = found["imageDetails"]
        return str(details[0]["imageDigest"]) if details else None


def image_sbom(order: ImageOrder, files: Mapping[str, bytes], digest: str | None = None) -> bytes:
    """Return an image's bill of materials; the same files give the same bytes.

    `files`: those of the image, by path; `digest`: the image's in the registry, once it is there.
    """
    reference = f"{order.repository}:{order.tag}"
    base = next(order.arguments[name] for name in BASE_ARGUMENTS if name in order.arguments)
    components = [
        {"type": "container", "bom-ref": base, "name": base},
        *_libraries(order, files),
        *(_file(path, data) for path, data in sorted(files.items())),
    ]
    image: dict[str, Any] = {
        "type": "container",
        "bom-ref": reference,
        "name": order.repository,
        "version": order.tag,
    }
    if digest is not None:
        image["hashes"] = [{"alg": "SHA-256", "content": digest.removeprefix("sha256:")}]
    document: dict[str, Any] = {
        "bomFormat": "CycloneDX",
        "specVersion": SPECIFICATION,
        "version": 1,
        "metadata": {"component": image},
        "components": components,
        "dependencies": [
            {"ref": reference, "dependsOn": [item["bom-ref"] for item in components]},
        ],
        "compositions": [{"aggregate": "incomplete", "assemblies": [base]}],
    }
    content = json.dumps(document, sort_keys=True)
    serial = uuid.uuid5(uuid.NAMESPACE_OID, content)
    return json.dumps({**document, "serialNumber": serial.urn}, indent=2, sort_keys=True).encode()


def requirements(text: str) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Yield name, version and sha256 hashes of every requirement of a lock."""
    for match in REQUIREMENT.finditer(text):
        yield match["name"], match["version"], tuple(HASH.findall(match["rest"]))


def _libraries(order: ImageOrder, files: Mapping[str, bytes]) -> list[dict[str, Any]]:
    """Return the packages of every requirements file that the image installs, once each."""
    bindings = f"{BINDINGS}{order.arguments.get('TENSORRT')}.txt"
    installed = (
        data.decode()
        for path, data in sorted(files.items())
        if path.startswith("requirements/") and (not path.startswith(BINDINGS) or path == bindings)
    )
    found = {item[:2]: item for text in installed for item in requirements(text)}
    return [_library(*item) for _, item in sorted(found.items())]


def _library(name: str, version: str, hashes: tuple[str, ...]) -> dict[str, Any]:
    purl = f"pkg:pypi/{re.sub(r'[-_.]+', '-', name).lower()}@{version}"
    distribution = {
        "type": "distribution",
        "url": purl,
        "hashes": [{"alg": "SHA-256", "content": value} for value in hashes],
    }
    return {
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": version,
        "purl": purl,
        "externalReferences": [distribution],
    }


def _file(path: str, data: bytes) -> dict[str, Any]:
    hashes = [{"alg": "SHA-256", "content": hashlib.sha256(data).hexdigest()}]
    return {"type": "file", "bom-ref": f"file:{path}", "name": path, "hashes": hashes}
