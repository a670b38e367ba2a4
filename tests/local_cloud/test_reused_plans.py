"""Batching, instances and names of deployed models change, and no plan is compiled again.

Everything is real but AWS and the GPU: builds by the state machine, archives signed by the signer,
answers of the Python server.
"""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from onboarding.lock import read_lock
from onboarding.names import builder_project, target_model
from roundhouse import invocation
from roundhouse.deploy.builds import engines
from roundhouse.errors import RoundhouseError
from tests.local_cloud.tiny_session import (
    ALONE,
    archive_bytes,
    deploy_all,
    lock_entry,
    publish,
    vector,
)

pytestmark = pytest.mark.local_cloud
SERVING = "serving: {server: python}"
TRITON = "{server: triton, instances_per_gpu: 2, dynamic_batching: {max_queue_delay_us: %d}}"
REFUSING = "serving: {server: python, auto_truncate: false, instances_per_gpu: 2}"
LONG = "the red train ran over the green track " * 8


def build_logs(session):
    """The log of every engine build, by its id."""
    client = session.clients("codebuild")
    project = builder_project(session.environment, "cpu")
    if not client.batch_get_projects(names=[project])["projects"]:
        return {}
    ids = client.list_builds_for_project(projectName=project)["ids"]
    builds = client.batch_get_builds(ids=ids)["builds"] if ids else []
    return {
        build["id"]: Path(build["logs"]["deepLink"].removeprefix("file://")).read_text()
        for build in builds
    }


def compilations(logs):
    """How many of these builds compiled, judged and timed a plan."""
    steps = [{line.partition(":")[0] for line in log.splitlines()} for log in logs]
    assert all({"compile", "verify", "benchmark"} & found in (set(), COMPILED) for found in steps)
    return sum(found >= COMPILED for found in steps)


COMPILED = {"compile", "verify", "benchmark"}


def deploy(tiny):
    """Deploy the files as they are; return the session and the logs of the builds that ran."""
    session = tiny.start()
    before = build_logs(session)
    result = deploy_all(session)
    after = build_logs(session)
    return session, result, [log for key, log in after.items() if key not in before]


def change(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def ask(session, model, text, engine_key=None):
    target = None if engine_key is None else target_model(engine_key)
    address = invocation.Address(endpoint=f"local-{model}", target_model=target)
    return invocation.invoke_texts(session.clients("sagemaker-runtime"), address, [text])[0]


def test_batching_cells_of_one_plan_compile_it_once_and_answer(tiny):
    tiny.write_sharing_models()
    tiny.write_like("one", "shared", serving="{auto_truncate: false}")
    tiny.write_like("two", "shared", serving="{warm_up: false}")
    tiny.write_like("three", ALONE, serving=TRITON % 100)
    session, result, logs = deploy(tiny)
    assert (len(result.built), len(logs), compilations(logs)) == (4, 4, 1)
    answer = vector(session)
    assert ask(session, "three", "a red train") == pytest.approx(answer, abs=1e-5)
    for name in ("one", "two"):
        ((key, entry),) = read_lock(tiny.lock.parent, name).engines.items()
        assert entry.signature is not None
        assert ask(session, "shared", "a red train", key) == pytest.approx(answer, abs=1e-5)
    entries = [entry for entry in result.built if entry.repackaged is not None]
    (compiled,) = [entry for entry in result.built if entry.repackaged is None]
    assert {entry.repackaged.engine_key for entry in entries} == {compiled.manifest.engine_key}
    assert {entry.plan_key for entry in result.built} == {compiled.plan_key}
    assert {entry.manifest.builder.built_at for entry in entries} == {
        compiled.manifest.builder.built_at
    }


def test_changed_batching_and_instances_answer_anew_and_nothing_is_compiled(tiny):
    session = tiny.start()
    answer, before = vector(session), lock_entry(tiny)
    assert len(ask(session, "tiny", LONG)) == len(answer)
    path = tiny.paths.tree / "models" / "tiny.yaml"
    change(path, SERVING, REFUSING)
    tiny.write_like("three", ALONE, serving=TRITON % 50)
    session, result, logs = deploy(tiny)
    assert (len(logs), compilations(logs)) == (2, 0)
    for entry in result.built:
        assert entry.manifest.accuracy == before.manifest.accuracy
        assert entry.manifest.benchmark == before.manifest.benchmark
    (entry,) = (entry for entry in result.built if entry.manifest.model == "three")
    with tarfile.open(fileobj=io.BytesIO(archive_bytes(session, entry))) as tar:
        configuration = tar.extractfile("three/config.pbtxt").read().decode()
    assert "max_queue_delay_microseconds: 50" in configuration
    for answered in (vector(session), ask(session, "three", "a red train")):
        assert answered == pytest.approx(answer, abs=1e-5)
    with pytest.raises(RoundhouseError, match="tokens"):
        ask(session, "tiny", LONG)


def test_refuses_a_changed_archive_as_a_source_and_compiles_with_the_reason(tiny):
    """The lock's archive is in S3, and its bytes are others: the builder alone can tell."""
    session, locks = tiny.start(), tiny.lock.parent
    for path in locks.glob("*.lock.yaml"):
        for entry in read_lock(locks, path.name.removesuffix(".lock.yaml")).engines.values():
            publish(session, entry, b"x" * entry.archive.size_bytes)
    models = tiny.paths.tree / "models"
    text = (models / "tiny.yaml").read_text().replace("name: tiny", "name: four")
    (models / "four.yaml").write_text(text.replace(REFUSING, f"{REFUSING[:-1]}, warm_up: false}}"))
    before = build_logs(session)
    (built,) = engines.build_all(session, engines.missing_engines(session, ("four",)))
    logs = [log for key, log in build_logs(session).items() if key not in before]
    assert (len(logs), compilations(logs)) == (2, 1)
    assert built.repackaged is None
    shown = session.report.console.file.getvalue()
    assert "its plan was compiled: the plan of engine" in " ".join(shown.split())
    assert "is not the archive that its lock names" in " ".join(shown.split())
