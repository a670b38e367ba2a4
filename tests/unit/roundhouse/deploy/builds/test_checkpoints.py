"""Checkpoints that are built, by which route, and how the end of each is recorded."""

from __future__ import annotations

import dataclasses

import pytest

from onboarding.lock import read_lock
from onboarding.names import checkpoint_record_path
from onboarding.text_generation.checkpoint_key import checkpoint_prefix
from onboarding.text_generation.checkpoint_lock import GenerationLock
from roundhouse.deploy.builds import engines
from roundhouse.deploy.builds.requests import missing_checkpoints
from roundhouse.deploy.builds.source import named_files
from roundhouse.errors import BuildFailedError, RoundhouseError
from roundhouse.gitops.build_estimates import build_preview
from roundhouse.session import valid_tree
from tests.unit.onboarding.text_generation.entries import checkpoint_entry
from tests.unit.onboarding.text_generation.test_generation_resolve import _root
from tests.unit.roundhouse.build_cloud import Cloud, session_of


class CheckpointCloud(Cloud):
    """A build machine of checkpoints; `refused`: schemes that their gate refuses."""

    refused = ()

    def _record(self, engine):
        record = {"engineKey": engine["engineKey"], "model": engine["model"]}
        if engine["scheme"] in self.reasons:
            reason = self.reasons[engine["scheme"]]
            return {**record, "status": "failed", "reason": reason, "log": "file:///a%20log.txt"}
        refusal = {"accepted": False, "reason": "KL 0.7 is above 0.1"}
        changes = refusal if engine["scheme"] in self.refused else {}
        entry = checkpoint_entry(engine["engineKey"], engine["scheme"], **changes)
        self.objects[checkpoint_record_path(engine["engineKey"])] = entry.model_dump_json().encode()
        for file in entry.files if entry.accepted else ():
            self.objects[f"{entry.prefix}{file.path}"] = bytes(file.size_bytes)
        return {**record, "status": "built", "notReused": ""}


@pytest.fixture
def session(tmp_path):
    return session_of(_root(tmp_path), CheckpointCloud(), "cloud")


def build(session, models=("chat",)):
    checkpoints = missing_checkpoints(session, models)
    return engines.build_all(session, checkpoints, sleep=lambda seconds: None, allow_dirty=True)


def locked(session):
    lock = read_lock(session.paths.tree / session.environment.locks, "chat", GenerationLock)
    return {entry.scheme: entry for entry in lock.checkpoints.values()}


def test_every_scheme_that_may_hold_is_built_once(session):
    entries = build(session)
    assert [entry.scheme for entry in entries] == ["bf16", "fp8", "awq"]
    assert set(locked(session)) == {"bf16", "fp8", "awq"}
    (given,) = session.clients.given
    (wave,) = given["waves"]
    assert [(item["scheme"], item["route"]) for item in wave] == [
        ("bf16", "quantizer"), ("fp8", "quantizer-job"), ("awq", "quantizer-job"),
    ]  # fmt: skip
    assert {item["instanceType"] for item in wave} == {"ml.g6e.2xlarge"}
    assert build(session) == () and len(session.clients.given) == 1


def test_refused_checkpoint_is_recorded_and_not_built_again(session):
    session.clients.refused = ("fp8",)
    build(session)
    assert not locked(session)["fp8"].accepted
    assert missing_checkpoints(session) == ()
    (deployment,) = session.generators()
    assert deployment.entry.scheme == "awq" or deployment.entry.scheme == "bf16"
    shown = session.report.console.file.getvalue()
    assert "refused: KL 0.7 is above 0.1" in shown and "Building chat in fp8" in shown


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
@pytest.mark.parametrize("content", [None, b"short"])
def test_files_that_are_gone_or_cut_short_are_built_again(session, name, content):
    build(session)
    key = locked(session)["fp8"].checkpoint_key
    assert missing_checkpoints(session) == ()
    path, objects = f"{checkpoint_prefix(key)}{name}", session.clients.objects
    del objects[path]
    objects.update({} if content is None else {path: content})
    (request,) = missing_checkpoints(session)
    assert (request.key, request.why) == (key, "in the lock, but gone from S3")


def test_models_are_named(session):
    assert missing_checkpoints(session, ("example",)) == ()
    with pytest.raises(RoundhouseError, match=r"no such model in environment cloud.*chat"):
        engines.missing_engines(session, ("chatt",))
    assert engines.missing_engines(session, ("chat",)) == ()


def test_refuses_to_build_for_a_promotion(session):
    with pytest.raises(BuildFailedError, match=r"Checkpoints of chat .* builds none of"):
        missing_checkpoints(dataclasses.replace(session, is_promoted=True))


def test_preview_says_where_and_what_the_last_one_took(session):
    before = [build_preview(session, request) for request in missing_checkpoints(session)]
    assert [item.cells()[2:5] for item in before] == [
        ("checkpoint in bf16", "not in the lock", "CodeBuild, Linux"),
        ("checkpoint in fp8", "not in the lock", "SageMaker training job on ml.g6e.2xlarge"),
        ("checkpoint in awq", "not in the lock", "SageMaker training job on ml.g6e.2xlarge"),
    ]
    assert before[0].minutes is None
    build(session)
    path = session.paths.tree / "models" / "chat.yaml"
    path.write_text(path.read_text().replace("0123456789abcdef" * 2 + "01234567", "1" * 40))
    assert build_preview(session, missing_checkpoints(session)[0]).minutes == 0.4


def test_sources_hold_the_files_that_generators_name(session):
    files = named_files(valid_tree(session.paths))
    assert {"models/data/8b.json", "models/data/calibration.txt"} <= set(files)
