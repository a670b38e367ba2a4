"""Which engines are built, in which order, and how the end of each is taken."""

from __future__ import annotations

import dataclasses
import io
import json
import zipfile

import pytest
import yaml

from onboarding.checkpoint import checkpoint_sha256
from onboarding.lock import lock_path, read_lock
from onboarding.resolve import deployments
from onboarding.tree import read_tree
from roundhouse.deploy.builds import engines
from roundhouse.deploy.builds.requests import EngineRequest, EnginesNotBuiltError, outcome
from roundhouse.deploy.builds.source import upload_source
from roundhouse.errors import NotReadyError, RoundhouseError
from roundhouse_cdk.build_expressions import LOG_CHARACTERS, REASON_CHARACTERS
from tests.unit.roundhouse.build_cloud import ARN, Cloud, session_of
from tests.unit.roundhouse.engines import copied_tree, local_deployments

ALL = ["sentence-embedder", "sentence-embedder-fp32", "sentence-embedder-int8"]


@pytest.fixture
def session(tmp_path):
    tree = copied_tree(tmp_path)
    return session_of(tree, Cloud(local_deployments(tree)))


def build(session, models=()):
    return engines.build_all(
        session, engines.missing_engines(session, models), sleep=lambda seconds: None
    )


def _models(requests):
    return [request.target.model.name for request in requests]


def dev_cloud(tree, **environment):
    """Build sentence-embedder for `dev`, whose file gets these keys; return the account."""
    path = tree / "environments/dev.yaml"
    path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), **environment}))
    (tree / "environments/local.yaml").unlink()
    cloud = Cloud(deployments(read_tree(tree), "dev"))
    cloud.session = session_of(tree, cloud, "dev")
    build(cloud.session, ("sentence-embedder",))
    return cloud


def on_instance(instance_type):
    return {"sentence-embedder": {"endpoint": {"instance_type": instance_type}}}


def lock_keys(session, model):
    return list(read_lock(session.paths.tree / session.environment.locks, model).engines)


def test_building_writes_the_locks_and_leaves_nothing_to_build(session):
    assert _models(engines.missing_engines(session)) == ALL
    assert len(build(session)) == 3
    assert all(lock_keys(session, model) for model in ALL)
    assert engines.missing_engines(session) == ()
    assert build(session) == ()


def test_all_engines_are_ordered_in_one_execution_from_the_published_sources(session):
    build(session)
    (given,) = session.clients.given
    assert session.clients.machine.endswith(":stateMachine:roundhouse-local-builds")
    bucket, _, key = given["source"].partition("/")
    assert bucket == "roundhouse-local-000000000000-us-east-1" and key in session.clients.objects
    assert given["commit"] == "abc123"
    assert [len(wave) for wave in given["waves"]] == [1, 2]
    keys = {engine.pop("engineKey") for wave in given["waves"] for engine in wave}
    assert keys == set(session.clients.targets)
    engines = {engine.pop("model"): engine for wave in given["waves"] for engine in wave}
    cpu = {"computeCapability": "cpu", "route": "cpu"}
    assert engines == {
        "sentence-embedder": {**cpu, "instanceType": "ml.c7i.large"},
        "sentence-embedder-fp32": {**cpu, "instanceType": "ml.c7i.xlarge"},
        "sentence-embedder-int8": {**cpu, "instanceType": "ml.c7i.xlarge"},
    }


def test_a_model_on_several_gpu_generations_is_built_for_each_by_its_own_route(tmp_path):
    tree = copied_tree(tmp_path)
    path = tree / "models/sentence-embedder.yaml"
    spec = yaml.safe_load(path.read_text())
    spec["endpoint"] = {
        "instance_type": "ml.g5.xlarge",
        "instance_pools": [{"instance_type": "ml.g6.xlarge"}],
    }
    path.write_text(yaml.safe_dump(spec))
    cloud = dev_cloud(tree)
    rows = {
        (engine["computeCapability"], engine["route"], engine["instanceType"])
        for engine in cloud.engines
    }
    assert rows == {("8.6", "gpu", "ml.g5.xlarge"), ("8.9", "training-job", "ml.g6.xlarge")}
    assert len(set(lock_keys(cloud.session, "sentence-embedder"))) == 2
    shown = cloud.session.report.console.file.getvalue()
    assert "Building sentence-embedder for 8.9 (not in the lock)" in shown


FLEET = "arn:aws:codebuild:us-east-1:111122223333:fleet/gpu:0b1c2d3e-0000-4000-8000-000000000000"


@pytest.mark.parametrize(
    ("environment", "instance_type", "route"),
    [
        ({"gpu_fleet_arn": FLEET}, "ml.g6.xlarge", "fleet"),
        ({"region": "eu-north-1"}, "ml.g5.xlarge", "training-job"),
    ],
    ids=["fleet for what on-demand CodeBuild lacks", "A10G where CodeBuild has no GPUs"],
)
def test_route_of_a_build_follows_its_environment(tmp_path, environment, instance_type, route):
    models = on_instance(instance_type)
    (engine,) = dev_cloud(copied_tree(tmp_path), models=models, **environment).engines
    assert (engine["route"], engine["instanceType"]) == (route, instance_type)


def test_sources_bring_a_checkpoint_that_lies_beside_the_models(session):
    folder = session.paths.tree / "checkpoints/mine"
    folder.mkdir(parents=True)
    for name in ("config.json", "model.safetensors", ".cache"):
        (folder / name).write_text(name)
    path = session.paths.tree / "models/sentence-embedder.yaml"
    spec = yaml.safe_load(path.read_text())
    spec["source"] = {"checkpoint": "checkpoints/mine", "sha256": checkpoint_sha256(folder)}
    path.write_text(yaml.safe_dump(spec))
    key = upload_source(session).partition("/")[2]
    names = zipfile.ZipFile(io.BytesIO(session.clients.objects[key])).namelist()
    assert {"checkpoints/mine/config.json", "checkpoints/mine/model.safetensors"} <= set(names)
    assert "checkpoints/mine/.cache" not in names


def test_an_engine_gone_from_s3_is_wanted_again(session):
    build(session)
    gone = next(key for key in session.clients.objects if key.endswith("model.tar.gz"))
    del session.clients.objects[gone]
    (order,) = engines.missing_engines(session)
    assert order.why == "in the lock, but gone from S3"


def test_engines_that_share_a_network_wait_for_it_and_one_of_two_endpoints_is_built_once(session):
    twice = [*session.deployments(), *session.deployments()]
    again = dataclasses.replace(session)
    object.__setattr__(again, "deployments", lambda: tuple(twice))
    first, second = engines.waves(engines.missing_engines(again))
    assert [len(request.target.network_keys) for request in first] == [2] and len(second) == 2


def test_engines_that_share_nothing_run_together_and_too_many_are_refused(session, monkeypatch):
    requests = apart(engines.missing_engines(session))
    assert [len(wave) for wave in engines.waves(requests)] == [3]
    monkeypatch.setattr(engines, "ENGINES_AT_MOST", 2)
    with pytest.raises(RoundhouseError, match=r"3 engines, and one execution builds at most 2; bu"):
        engines.build_all(session, requests, sleep=lambda seconds: None)
    assert session.clients.given == []


def apart(requests):
    """Return requests that share no network."""
    targets = [
        dataclasses.replace(request.target, network_keys={"float": str(number)})
        for number, request in enumerate(requests)
    ]
    pairs = zip(requests, targets, strict=True)
    return [dataclasses.replace(request, target=target) for request, target in pairs]


def test_refuses_a_failed_build_with_its_reason_and_log_and_keeps_the_lock(session):
    build(session, ("sentence-embedder",))
    path = lock_path(session.paths.tree / session.environment.locks, "sentence-embedder")
    before = path.read_bytes()
    reason = "The worst cosine is 0.91, the budget asks for 0.95"
    session.clients.reasons = {"sentence-embedder": reason}
    pairs = session.clients.targets.values()
    deployment, target = next(p for p in pairs if p[1].model.name == "sentence-embedder")
    order = EngineRequest(deployment=deployment, target=target, why="again")
    message = r"sentence-embedder: The worst cosine .* are as they were\. Log: /a log\.txt$"
    with pytest.raises(EnginesNotBuiltError, match=message) as error:
        engines.build_all(session, (order,), sleep=lambda seconds: None)
    assert error.value.exit_code == 3
    assert path.read_bytes() == before


def test_one_failed_engine_leaves_the_others_built_and_recorded(session):
    session.clients.reasons = {"sentence-embedder-int8": "no layer can be INT8."}
    message = r"no layer can be INT8\. .*2 engines beside it are built and in their locks"
    with pytest.raises(EnginesNotBuiltError, match=message) as error:
        build(session)
    assert _models(engines.missing_engines(session)) == ["sentence-embedder-int8"]
    document = json.loads(json.dumps(outcome(error.value.built, error.value.failures)))
    assert [entry["manifest"]["model"] for entry in document["built"]] == ALL[:2]
    (failed,) = document["failed"]
    assert (failed["model"], failed["reason"]) == (ALL[2], "no layer can be INT8.")
    shown = session.report.console.file.getvalue()
    assert "✗ Building sentence-embedder-int8 (not in the lock): no layer can be INT8." in shown
    assert "✓ Building sentence-embedder-fp32 (not in the lock): fp32 engine" in shown


def test_refuses_several_failed_engines_each_with_its_reason_and_log(session):
    session.clients.reasons = {"sentence-embedder": "too slow", ALL[1]: "too wrong"}
    with pytest.raises(EnginesNotBuiltError) as error:
        build(session)
    head, *lines = str(error.value).splitlines()
    assert head.startswith("2 of 3 engines were not built;") and "The other 1 are built" in head
    assert sorted(lines) == [
        "  sentence-embedder-fp32: too wrong. Log: /a log.txt",
        "  sentence-embedder: too slow. Log: /a log.txt",
    ]


@pytest.mark.parametrize(
    ("field", "model", "message"),
    [
        ("silent", ALL[1], rf"{ALL[1]}: its execution ended without a word.* Log: {ARN}"),
        ("unrecorded", ALL[0], r"lock-entry\.json is not there: it built another key"),
        ("unreadable", ALL[0], r"cannot be read by this version of roundhouse \(2 fault\(s\)\)"),
    ],
)
def test_refuses_an_engine_without_its_record(session, field, model, message):
    setattr(session.clients, field, (model,))
    with pytest.raises(EnginesNotBuiltError, match=message):
        build(session)
    assert model in _models(engines.missing_engines(session))


def test_refuses_engines_that_had_not_begun_when_somebody_stopped_the_execution(session):
    def start(stateMachineArn, input):
        session.clients.given.append(json.loads(input))
        return {"executionArn": ARN}

    session.clients.status, session.clients.cause = "ABORTED", "by hand"
    session.clients.list_map_runs = lambda executionArn: {"mapRuns": []}
    session.clients.start_execution = start
    message = r"3 of 3 engines.*\n.*the builds were stopped before it began"
    with pytest.raises(EnginesNotBuiltError, match=message):
        build(session)


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ("bucket_there", "`roundhouse deploy --env local` makes it"),
        (
            "machine_there",
            "roundhouse-local-builds: is not there yet; `roundhouse deploy --env local` makes it",
        ),
    ],
)
def test_refuses_to_build_before_the_first_deploy(session, field, message):
    setattr(session.clients, field, False)
    with pytest.raises(NotReadyError, match=message):
        build(session)


def test_records_of_all_engines_of_an_execution_fit_into_its_output():
    """Even where every reason is text of four bytes a character.

    A log is a link or a stream: ASCII, its length bounded too.
    """
    name, key = "a" * 63, "0" * 20
    engine = {"engineKey": key, "model": name, "computeCapability": "12.0"}
    engine |= {"route": "training-job", "instanceType": name}
    engine |= {"planFrom": f"{key}:{'0' * 64}", "planRoute": "cpu"}
    record = {"status": "failed", "engineKey": key, "model": name}
    record |= {"reason": "\U0001f600" * REASON_CHARACTERS, "log": "l" * LOG_CHARACTERS}
    whole = {
        "waves": [[engine] for _ in range(engines.ENGINES_AT_MOST)],
        "records": [[record]] * engines.ENGINES_AT_MOST,
    }
    assert len(json.dumps(whole, ensure_ascii=False).encode()) < 256 * 1024 - 1024
