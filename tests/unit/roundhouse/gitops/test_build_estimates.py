"""Which engines are compiled or packaged of a plan that is there, where, and what that takes."""

from __future__ import annotations

import pytest

from onboarding.lock import write_lock_entry
from onboarding.manifest import BuilderRecord, RepackagingRecord
from roundhouse.deploy.builds.engines import missing_engines
from roundhouse.gitops.build_estimates import build_preview
from tests.unit.roundhouse.build_cloud import Cloud, session_of
from tests.unit.roundhouse.engines import copied_tree, entry_for, local_deployments


@pytest.fixture
def session(tmp_path):
    tree = copied_tree(tmp_path)
    return session_of(tree, Cloud(local_deployments(tree)))


def previews(session):
    return {
        request.target.model.name: build_preview(session, request)
        for request in missing_engines(session)
    }


def test_preview_of_a_first_build_knows_where_and_not_how_long(session):
    preview = previews(session)["sentence-embedder"]
    assert (preview.route, preview.machine, preview.why) == (
        "cpu",
        "CodeBuild, Linux",
        "not in the lock",
    )
    assert (preview.minutes, preview.usd) == (None, None)
    assert preview.cells()[5] == "unknown: none was timed"


BUILDER = BuilderRecord(machine="a", built_at="2026-01-01T00:00:00Z", seconds=90.0)


@pytest.fixture
def earlier(session):
    """The target of the model, and an entry of an engine that was built for it in 90 s."""
    deployment = next(item for item in session.deployments() if item.name == "sentence-embedder")
    (target,) = deployment.targets
    return target, entry_for(deployment, target, builder=BUILDER, engine_key="0" * 20)


def test_preview_follows_the_last_build_of_the_model(session, earlier):
    locks = session.paths.tree / session.environment.locks
    write_lock_entry(locks, "sentence-embedder", earlier[1])
    preview = previews(session)["sentence-embedder"]
    assert (preview.minutes, preview.usd) == (1.5, 0.03)
    assert preview.cells()[5:] == ("1.5", "0.03")


def test_preview_says_repackage_where_a_lock_has_the_plan(session, earlier):
    target, entry = earlier
    packaged = RepackagingRecord(
        engine_key="1" * 20,
        archive_sha256="a" * 64,
        builder=BUILDER.model_copy(update={"seconds": 12.0}),
    )
    locks = session.paths.tree / session.environment.locks
    assert previews(session)["sentence-embedder"].action == "compile"
    for record, minutes, usd in ((None, None, None), (packaged, 0.2, 0.0)):
        update = {"plan_key": target.plan_key, "repackaged": record}
        write_lock_entry(locks, "sentence-embedder", entry.model_copy(update=update))
        session.clients.objects[entry.archive.path] = b"archive"
        preview = previews(session)["sentence-embedder"]
        assert (preview.action, preview.plan_from, preview.route) == ("repackage", "0" * 20, "cpu")
        assert (preview.minutes, preview.usd) == (minutes, usd)
    assert preview.cells()[2] == "repackage"
