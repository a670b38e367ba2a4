"""Software bills of materials of container images, as CycloneDX JSON, from what they are built of.

Nothing is read but the files of the image: the locked requirements with their hashes and our own
code. What the base image holds is named by the base image alone.
"""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

from stacks.images import ImageOrder

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
