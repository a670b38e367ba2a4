"""Engines go from one bucket to another in a real S3: large ones in parts, others as they are."""

import hashlib

import pytest

from onboarding.lock import ArchiveRecord
from roundhouse.errors import DeployFailedError
from roundhouse.gitops.copies import Store, copy_engines
from tests.unit.onboarding.manifests import lock_entry

pytestmark = pytest.mark.local_cloud

KEY = "c" * 20
PATH = f"engines/{KEY}/model.tar.gz"
LARGE = b"engine" * 3 * 2**20
"""18 MiB: boto3 copies what is larger than 8 MiB in parts."""


@pytest.fixture
def stores(cloud):
    s3 = cloud.client("s3")
    found = []
    for name in ("promotion-source", "promotion-destination"):
        s3.create_bucket(Bucket=name)
        found.append(Store(environment=name, bucket=name, s3=s3))
    yield found
    for store in found:
        for item in s3.list_objects_v2(Bucket=store.bucket).get("Contents", ()):
            s3.delete_object(Bucket=store.bucket, Key=item["Key"])
        s3.delete_bucket(Bucket=store.bucket)


def entry(content):
    sha256 = hashlib.sha256(content).hexdigest()
    archive = ArchiveRecord(
        path=PATH, sha256=sha256, size_bytes=len(content), manifest_sha256="a" * 64
    )
    return lock_entry("m", KEY).model_copy(update={"archive": archive})


def test_engine_is_copied_once_and_has_the_digest_of_its_lock(stores):
    source, destination = stores
    put = source.s3.put_object
    put(Bucket=source.bucket, Key=PATH, Body=LARGE)
    put(Bucket=source.bucket, Key=f"engines/{KEY}/lock-entry.json", Body=b"{}")
    put(Bucket=source.bucket, Key=f"networks/{'f' * 20}/model.onnx", Body=b"network")
    first = copy_engines(source, destination, [entry(LARGE)])
    again = copy_engines(source, destination, [entry(LARGE)])
    assert (first.copied, first.present, again.copied, again.present) == (3, 0, 0, 3)
    body = destination.s3.get_object(Bucket=destination.bucket, Key=PATH)["Body"].read()
    assert body == LARGE


def test_refuses_an_archive_that_is_not_its_locks(stores):
    source, destination = stores
    source.s3.put_object(Bucket=source.bucket, Key=PATH, Body=b"other bytes")
    with pytest.raises(DeployFailedError, match="two builds claim one key"):
        copy_engines(source, destination, [entry(LARGE)])
    assert "Contents" not in destination.s3.list_objects_v2(Bucket=destination.bucket)
