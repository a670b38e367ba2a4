"""A promotion is reverted under load: nothing is built, no request fails, within a minute."""

from __future__ import annotations

import base64
import hashlib
import time

import pytest

from local_cloud import lifecycle
from onboarding.names import artifact_bucket
from onboarding.promotion import read_promotion
from onboarding.tree import read_tree
from roundhouse.deploy.builds.engines import build_all, missing_engines
from roundhouse.session import cloud_folder
from tests.local_cloud.load import steady_load
from tests.local_cloud.tiny_session import Caller, deploy_all, session_at, sound_network
from tests.local_cloud.two_accounts import TwoAccounts, stored_objects
from tests.unit.roundhouse.gitops.repository import git

pytestmark = pytest.mark.local_cloud

MOST_SECONDS = 60.0
"""From the merge of the revert to the end of its deployment."""
RECEIVER = "000000000000"
RECEIVES = "promotes_from: dev\n"
DEV = """\
name: dev
account: "111122223333"
region: eu-west-1
platform: triton-24.10-cpu
locks: locks/dev
"""


def build_two_engines(tiny):
    """Deploy the second model, and build the first one's engine; return the session."""
    file = tiny.paths.tree / "environments" / "local.yaml"
    file.write_text(file.read_text().replace("build/local/locks", "locks/dev"))
    session = tiny.start()
    tiny.write_model(sound_network(), mean=0.98)
    deploy_all(session)
    tiny.write_model(sound_network())
    build_all(session, missing_engines(session))
    return session


def hand_over(tiny, session, accounts):
    """Make dev, in another account and region, the one that holds the engines and their locks."""
    tree = tiny.paths.tree
    (tree / "environments" / "dev.yaml").write_text(DEV)
    file = tree / "environments" / "local.yaml"
    file.write_text(file.read_text().replace("locks/dev", "locks/local") + RECEIVES)
    environments = read_tree(tree).environments
    dev, own = accounts.make_bucket(environments["dev"]), session.clients("s3")
    bucket = artifact_bucket(session.environment)
    for key, content in stored_objects(own, bucket).items():
        if key.startswith(("engines/", "networks/")):
            digest = base64.b64encode(hashlib.sha256(content).digest()).decode()
            place = {"Bucket": artifact_bucket(environments["dev"]), "Key": key}
            dev.put_object(**place, Body=content, ChecksumSHA256=digest)
            own.delete_object(Bucket=bucket, Key=key)


def promote_and_commit(tiny, accounts):
    """Commit the files, promote them from dev, and merge the promotion."""
    commit(tiny, "files")
    copied = accounts.promote(tiny.paths, destination="local").copied.copied
    commit(tiny, "promotion")
    return copied


def commit(tiny, message):
    git(tiny.paths.tree, "add", "-A")
    git(tiny.paths.tree, "commit", "-q", "-m", message)


def engine_of(session):
    (deployment,) = session.deployments()
    return deployment.targets[0].engine_key


def test_reverted_promotion_is_deployed_under_load_without_a_build_or_a_failed_request(tmp_path):
    with session_at(tmp_path / "session") as tiny:
        session = build_two_engines(tiny)
        address = lifecycle.find(cloud_folder(tiny.paths))
        accounts = TwoAccounts(address, receiver=RECEIVER)
        hand_over(tiny, session, accounts)
        (tiny.paths.tree / ".gitignore").write_text("build/\n")
        git(tiny.paths.tree, "init", "-q", "-b", "main")
        assert promote_and_commit(tiny, accounts) > 0
        tiny.write_model(sound_network(), mean=0.98)
        assert promote_and_commit(tiny, accounts) > 0

        promoted = tiny.start()
        second = engine_of(promoted)
        builds = promoted.clients("codebuild").list_builds()["ids"]
        with steady_load(Caller(promoted.clients), "local-tiny") as load:
            git(tiny.paths.tree, "revert", "--no-edit", "HEAD")
            begin = time.monotonic()
            reverted = tiny.start()
            result = deploy_all(reverted)
            seconds = time.monotonic() - begin
            load.forget_answers()
            load.until_answered("AllTraffic")
        print(f"rollback: {seconds:.1f} s, {len(load.answers)} answers after it")
        assert load.failures == []
        assert "local/Endpoint-tiny" in result.deployed.changed
        assert reverted.is_promoted and engine_of(reverted) != second
        assert read_promotion(tiny.paths.tree, "local").models == {}
        assert promoted.clients("codebuild").list_builds()["ids"] == builds
        assert seconds <= MOST_SECONDS
