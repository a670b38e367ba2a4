"""Which engines are compiled or packaged of a plan that is there, where, and what that takes."""

from __future__ import annotations

import pytest

from onboarding.lock import read_lock, write_lock_entry
from onboarding.manifest import BuilderRecord, RepackagingRecord
from onboarding.resolve import deployments
from onboarding.tree import read_tree
from roundhouse.deploy.builds.engines import missing_engines
from roundhouse.gitops.build_estimates import build_preview
from roundhouse.gitops.plan_comment import comment
from roundhouse.gitops.plan_text import headline, notes, sections
from tests.unit.roundhouse.build_cloud import Cloud, session_of
from tests.unit.roundhouse.engines import copied_tree, entry_for, local_deployments, plan_files
from tests.unit.roundhouse.gitops.repository import BUDGET

pytestmark = pytest.mark.unit


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
    assert "no build of this model was timed" in preview.cells()[5]


def test_preview_follows_the_last_build_of_the_model(session):
    deployment = next(item for item in session.deployments() if item.name == "sentence-embedder")
    (target,) = deployment.targets
    builder = BuilderRecord(machine="a", built_at="2026-01-01T00:00:00Z", seconds=90.0)
    entry = entry_for(deployment, target, builder=builder, engine_key="0" * 20)
    write_lock_entry(session.paths.tree / session.environment.locks, "sentence-embedder", entry)
    preview = previews(session)["sentence-embedder"]
    assert (preview.minutes, preview.usd) == (1.5, 0.03)
    assert preview.cells()[5:] == ("1.5", "0.03")


def test_preview_says_repackage_where_a_lock_has_the_plan(session):
    deployment = next(item for item in session.deployments() if item.name == "sentence-embedder")
    (target,) = deployment.targets
    builder = BuilderRecord(machine="a", built_at="2026-01-01T00:00:00Z", seconds=90.0)
    entry = entry_for(deployment, target, builder=builder, engine_key="0" * 20)
    packaged = RepackagingRecord(
        engine_key="1" * 20,
        archive_sha256="a" * 64,
        builder=builder.model_copy(update={"seconds": 12.0}),
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


MODELS = ("model-001", "model-002")
FILES = tuple(f"models/{name}.yaml" for name in MODELS)
BATCHING = {"serving": {"dynamic_batching": {"max_queue_delay_us": 7}}}


@pytest.fixture
def compiled(repository):
    """The repository, its first model's lock with the plan's key, its second's one of before."""
    record(repository)
    return repository


def record(repository, **changes):
    """Write the plan's key into the lock of the first model, and what its build took."""
    environment = read_tree(repository.root).environments["dev"]
    locks = repository.root / environment.locks
    target = next(
        target
        for deployment in deployments(read_tree(repository.root), "dev")
        for target in deployment.targets
        if target.model.name == MODELS[0]
    )
    entry = read_lock(locks, MODELS[0]).engines[target.engine_key]
    manifest = entry.manifest
    measured = {
        "builder": manifest.builder.model_copy(update={"seconds": 1800.0}),
        "files": plan_files(manifest.engine_file, target.plan_key),
    }
    update = {
        "manifest": manifest.model_copy(update=measured),
        "plan_key": target.plan_key,
        **changes,
    }
    write_lock_entry(locks, MODELS[0], entry.model_copy(update=update))
    repository.commit()
    return entry


def engine_rows(plan):
    return next(item.rows for item in sections(plan) if item.title == "Engines")


def test_changed_batching_is_repackaged(compiled):
    (before,) = read_lock(compiled.root / "models", MODELS[0]).engines
    compiled.edit(FILES[0], BATCHING)
    environment = compiled.changes()
    (engine,) = environment.engines
    assert (engine.state, engine.plan_from, engine.route) == ("missing", before, "cpu")
    ((_, _, _, after),) = engine_rows(environment)
    assert f"repackage the plan of engine {before}: route cpu, time and cost unknown" in after
    assert "1 engine to build (1 repackaged)" in headline(environment)
    assert any("Repackaged: model-001; nothing is compiled" in note for note in notes(environment))
    assert "repackage the plan of engine" in comment(compiled.plan())


def test_of_several_with_a_new_plan_the_first_is_compiled_and_the_others_follow(compiled):
    for file in FILES:
        compiled.edit(file, BUDGET)
    environment = compiled.changes()
    first, second = sorted(environment.engines, key=lambda engine: engine.plan_from is not None)
    assert (first.plan_from, first.route) == (None, "gpu")
    assert (second.plan_from, second.route) == (first.key, "cpu")
    assert "2 engines to build (1 repackaged)" in headline(environment)
    texts = [row[3] for row in engine_rows(environment)]
    assert any("; compile: route gpu" in text for text in texts)


def test_preview_and_plan_name_the_same_engine(compiled):
    """The plan, from files alone, and the build, which knows the bucket."""
    from roundhouse.deploy.builds import engines
    from tests.unit.roundhouse.build_cloud import Cloud, session_of

    compiled.edit(FILES[0], BATCHING)
    tree = read_tree(compiled.root)
    cloud = Cloud(deployments(tree, "dev"))
    for name in MODELS:
        for entry in read_lock(compiled.root / "models", name).engines.values():
            cloud.objects[entry.archive.path] = b"archive"
    (request,) = engines.missing_engines(session_of(compiled.root, cloud, "dev"))
    (engine,) = compiled.changes().engines
    assert request.plan_from.engine_key == engine.plan_from
