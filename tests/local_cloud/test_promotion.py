"""Engines go from one account and region to another in a real S3, and go on after every kill -9."""

import base64
import hashlib
import json
import os
import signal

import pytest

from onboarding.lock import ArchiveRecord
from onboarding.names import artifact_bucket
from onboarding.promotion import promotion_path, read_promotion
from onboarding.tree import read_tree
from roundhouse.aws.clients import COPIES
from roundhouse.errors import AwsError
from roundhouse.gitops.copies import Store, copy_entries
from roundhouse.processes import Processes
from tests.local_cloud.two_accounts import DESTINATION, SOURCE, TwoAccounts, stored_objects
from tests.unit.onboarding.manifests import lock_entry
from tests.unit.roundhouse.gitops.repository import Repository
from tests.unit.roundhouse.gitops.rungs import BUCKETS, Rungs

pytestmark = pytest.mark.local_cloud

KEY = "c" * 20
COMMANDS = {KEY: "`roundhouse build`"}
PATH = f"engines/{KEY}/model.tar.gz"
LARGE = b"engine" * 3 * 2**20
KILLS = 5


@pytest.fixture(scope="module")
def accounts(cloud):
    with pytest.MonkeyPatch.context() as patch:
        # What a role that is assumed calls, as in a shell that uses the local cloud.
        patch.setenv("AWS_ENDPOINT_URL", cloud.address.endpoint_url)
        yield TwoAccounts(cloud.address)


@pytest.fixture(scope="module")
def rungs(accounts, tmp_path_factory):
    """A repository of dev and prod; dev's engines are in its account's bucket."""
    rungs = Rungs(Repository(tmp_path_factory.mktemp("promotion") / "repository"))
    environments = read_tree(rungs.root).environments
    s3 = {name: accounts.make_bucket(environments[name]) for name in ("dev", "prod")}
    for key, content in rungs.s3.buckets[BUCKETS["dev"]].items():
        put_with_digest(s3["dev"], BUCKETS["dev"], key, content)
    rungs.prod_s3 = s3["prod"]
    return rungs


@pytest.fixture
def unpromoted(rungs):
    """The repository, with nothing promoted yet."""
    yield rungs
    for key in stored_objects(rungs.prod_s3, BUCKETS["prod"]):
        rungs.prod_s3.delete_object(Bucket=BUCKETS["prod"], Key=key)
    promotion_path(rungs.root, "prod").unlink(missing_ok=True)


def entry(content):
    sha256 = hashlib.sha256(content).hexdigest()
    archive = ArchiveRecord(
        path=PATH, sha256=sha256, size_bytes=len(content), manifest_sha256="a" * 64
    )
    return lock_entry("m", KEY).model_copy(update={"archive": archive})


@pytest.fixture
def stores(accounts, unpromoted):
    """Both buckets, as the receiving account's clients see them."""
    environments = read_tree(unpromoted.root).environments.values()
    return [
        Store(
            bucket=artifact_bucket(item),
            s3=accounts.clients_of(item)("s3"),
            copies=accounts.clients_of(item)(COPIES),
        )
        for item in environments
    ]


@pytest.fixture
def source_s3(accounts, stores):
    """The source account's own client; what it put is gone afterwards."""
    s3 = accounts.client("s3", SOURCE, "us-east-1")
    yield s3
    for key in stored_objects(s3, stores[0].bucket):
        if KEY in key:
            s3.delete_object(Bucket=stores[0].bucket, Key=key)


def test_engine_is_copied_once_and_has_the_digest_of_its_lock(stores, source_s3):
    source, destination = stores
    put_with_digest(source_s3, source.bucket, PATH, LARGE)
    source_s3.put_object(Bucket=source.bucket, Key=f"engines/{KEY}/lock-entry.json", Body=b"{}")
    first = copy_entries(source, destination, [entry(LARGE)], COMMANDS)
    again = copy_entries(source, destination, [entry(LARGE)], COMMANDS)
    assert (first.copied, again.copied, again.present) == (2, 0, 2)
    body = destination.s3.get_object(Bucket=destination.bucket, Key=PATH)["Body"].read()
    assert body == LARGE
    tags = destination.s3.get_object_tagging(Bucket=destination.bucket, Key=PATH)["TagSet"]
    assert tags == []


def put_with_digest(s3, bucket, key, data):
    digest = base64.b64encode(hashlib.sha256(data).digest()).decode()
    marked = "roundhouse=unreferenced"
    s3.put_object(Bucket=bucket, Key=key, Body=data, ChecksumSHA256=digest, Tagging=marked)


def test_source_that_the_receiving_account_may_not_read_is_one_sentence(
    accounts, unpromoted, stores
):
    source, destination = stores
    owner = accounts.client("s3", SOURCE, "us-east-1")
    policy = owner.get_bucket_policy(Bucket=source.bucket)["Policy"]
    owner.delete_bucket_policy(Bucket=source.bucket)
    try:
        with pytest.raises(AwsError) as refused:
            accounts.promote(unpromoted.paths)
    finally:
        owner.put_bucket_policy(Bucket=source.bucket, Policy=policy)
    assert refused.value.exit_code == 5 and "\n" not in str(refused.value)
    assert source.bucket in str(refused.value)
    assert read_promotion(unpromoted.root, "prod") is None
    assert stored_objects(destination.s3, destination.bucket) == {}


class Steps:
    """Counts what a promotion does, requests and processes; kills this process at one of them."""

    def __init__(self, last):
        self.count, self.last = 0, last

    def take(self):
        self.count += 1
        if self.count == self.last:
            os.kill(os.getpid(), signal.SIGKILL)


def promote_in_a_process(address, paths, last, report):
    """Promote in a process of its own that is killed at a step; return how it ended."""
    pid = os.fork()
    if pid == 0:
        steps, code = Steps(last), 1
        try:

            def run(command, on_line=None):
                steps.take()
                return Processes()(command, on_line)

            TwoAccounts(address, steps.take).promote(paths, run)
            report.write_text(json.dumps(steps.count))
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_promotion_that_is_killed_at_any_moment_goes_on_to_the_same_result(
    accounts, unpromoted, stores, tmp_path
):
    (_, destination), count = stores, tmp_path / "count"

    def result():
        text = promotion_path(unpromoted.root, "prod").read_bytes()
        return stored_objects(destination.s3, destination.bucket), text

    def undo():
        for key in stored_objects(destination.s3, destination.bucket):
            destination.s3.delete_object(Bucket=destination.bucket, Key=key)
        promotion_path(unpromoted.root, "prod").unlink()

    def promote_until(step):
        return promote_in_a_process(accounts.address, unpromoted.paths, step, count)

    assert promote_until(None) == 0
    expected, steps = result(), json.loads(count.read_text())
    assert steps >= KILLS and len(expected[0]) == len(unpromoted.s3.buckets[BUCKETS["dev"]])
    for number in range(KILLS):
        undo()
        assert promote_until(1 + number * (steps - 1) // (KILLS - 1)) == -signal.SIGKILL
        assert read_promotion(unpromoted.root, "prod") is None
        accounts.promote(unpromoted.paths)
        assert result() == expected
    assert DESTINATION in destination.bucket
