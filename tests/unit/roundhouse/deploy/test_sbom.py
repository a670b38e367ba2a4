"""An image's bill of materials names every locked package with its hashes, and is CycloneDX."""

from __future__ import annotations

import json

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from pip_requirements_parser import RequirementsFile

from roundhouse.deploy import images
from roundhouse.deploy.images import image_sbom
from stacks.images import read_image_files
from tests.unit.roundhouse.deploy.whole_session import image_digest, whole_session
from tests.unit.roundhouse.engines import REPOSITORY

pytestmark = pytest.mark.unit

REQUIREMENTS = {
    "triton": ["server"],
    "builder-cpu": ["builder", "torch-cpu"],
    "builder-gpu": ["bindings-10.16.1.11", "builder", "torch-cpu"],
}


@pytest.fixture
def session(tmp_path):
    return whole_session(tmp_path)


def reference(lock):
    """Hashes of each package by what pip's own parser reads from a lock."""
    found = RequirementsFile.from_file(str(REPOSITORY / "requirements" / f"{lock}.txt"))
    return {
        (item.name.lower(), item.get_pinned_version): sorted(
            value.removeprefix("sha256:") for value in item.hash_options
        )
        for item in found.requirements
    }


def packages(document):
    return {
        (item["name"].lower(), item["version"]): sorted(
            value["content"]
            for found in item.get("externalReferences", ())
            for value in found.get("hashes", ())
        )
        for item in document["components"]
        if item["type"] == "library"
    }


def test_written_bills_are_valid_and_name_every_requirement_and_hash(session):
    written = {path.name.removesuffix(".cdx.json"): path for path in images.write_sboms(session)}
    assert written.keys() == REQUIREMENTS.keys()
    validator = JsonStrictValidator(SchemaVersion.V1_6)
    assert validator.validate_str(written["builder-gpu"].read_text()) is None
    for image, path in written.items():
        text = path.read_text()
        locked = {}
        for lock in REQUIREMENTS[image]:
            locked |= reference(lock)
        assert packages(json.loads(text)) == locked and all(locked.values())


def test_bill_follows_files_and_digest_and_nothing_else(session):
    (order, *_) = images.current_orders(session)
    files = read_image_files(REPOSITORY)[order.image]
    bill = image_sbom(order, files)
    assert bill == image_sbom(order, dict(reversed(files.items())))
    path = next(iter(files))
    changed = {**files, path: files[path] + b" "}
    assert len({bill, image_sbom(order, changed), image_sbom(order, files, "sha256:00")}) == 3


def test_bill_of_a_built_image_lies_in_the_bucket_with_its_digest(session):
    orders = images.current_orders(session)
    images.build_images(session, orders)
    for order in orders:
        bill = json.loads(session.clients.objects[f"images/{order.image}/{order.tag}.cdx.json"])
        (digest,) = bill["metadata"]["component"]["hashes"]
        assert f"sha256:{digest['content']}" == image_digest(f"{order.repository}:{order.tag}")
