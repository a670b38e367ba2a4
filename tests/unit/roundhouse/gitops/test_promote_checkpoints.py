"""Checkpoints of text generators go to the next environment as engines do, or are refused."""

from __future__ import annotations

import json

import pytest

from onboarding.fault import FaultsError
from onboarding.lock import write_lock_entry
from onboarding.promotion import read_promotion, write_promotion
from onboarding.tree import read_tree
from roundhouse.deploy.builds.requests import missing_checkpoints
from roundhouse.deploy.builds.source import named_files
from roundhouse.deploy.destroy import unpromoted_models
from roundhouse.errors import BuildFailedError, DeployFailedError
from roundhouse.processes import Processes
from roundhouse.promoted_tree import environment_paths
from tests.fixtures.signer import Signer
from tests.unit.onboarding.text_generation.entries import CONTENT, entry_of
from tests.unit.roundhouse.gitops.generators import CALIBRATION, PROD
from tests.unit.roundhouse.gitops.rungs import NOW


def test_the_checkpoint_that_serves_is_copied_record_last_and_the_promotion_names_it(chat, rungs):
    promoted, serves = rungs.promote(), chat.deployment().entry
    key = serves.checkpoint_key
    files = [f"{serves.prefix}{file.path}" for file in serves.files]
    assert sorted(chat.copies()[:-1]) == sorted(files)
    assert chat.copies()[-1] == f"checkpoints/{key}.json"
    assert all(chat.prod[name] == chat.dev[name] for name in chat.copies())
    promotion = read_promotion(rungs.root, "prod")
    assert promotion.checkpoints["chat"].checkpoint_key == key
    assert promotion.checkpoints["chat"].files_sha256 == serves.files_sha256
    assert chat.promoted().entry == chat.deployment().entry and promoted.path is not None
    again = rungs.promote()
    assert (again.path, again.copied.copied) == (None, 0)


def test_environment_that_receives_builds_nothing(chat, rungs):
    session = type("Session", (), {})()
    session.environment = read_tree(rungs.root).environments["prod"]
    session.clients = {"s3": rungs.s3}.__getitem__
    session.generators, session.is_promoted = lambda: (chat.deployment("prod"),), False
    with pytest.raises(BuildFailedError, match=r"Checkpoints of chat .* `roundhouse promote"):
        missing_checkpoints(session)
    rungs.promote()
    assert missing_checkpoints(session) == ()
    session.generators, session.is_promoted = lambda: (chat.promoted(),), True
    assert missing_checkpoints(session) == ()
    serves = chat.promoted().entry
    del chat.prod[f"{serves.prefix}{serves.files[-1].path}"]
    with pytest.raises(BuildFailedError, match="builds none of them again"):
        missing_checkpoints(session)


def test_refuses_every_gate_that_is_not_met_at_once(chat, rungs):
    signers = {"trusted_signers": [Signer().public]}
    rungs.repository.edit("environments/prod.yaml", signers)
    rungs.alarms.history.append(("dev-chat-first-token", NOW.replace(hour=11, minute=30)))
    rungs.repository.commit()
    with pytest.raises(DeployFailedError) as refused:
        rungs.promote()
    text = str(refused.value)
    for fault in (
        "none of 'trusted_signers' signed checkpoint",
        "chat: an alarm rang at 2026-11-22 11:30 UTC",
    ):
        assert fault in text
    assert rungs.s3.copies == [] and read_promotion(rungs.root, "prod") is None


def test_plan_shows_that_nobody_trusted_signed_the_checkpoint(chat, rungs):
    rungs.repository.edit("environments/dev.yaml", {"trusted_signers": [Signer().public]})
    endpoints = {item.name: item for item in rungs.repository.plan().environments[0].endpoints}
    (fault,) = endpoints["chat"].faults
    assert fault.startswith("none of 'trusted_signers' signed checkpoint")


def test_a_start_from_zero_and_an_alarm_of_another_endpoint_are_no_reason(chat, rungs):
    moment = NOW.replace(hour=11, minute=30)
    rungs.alarms.ringing += ["dev-chat-from-zero", "dev-chat-fr-first-token"]
    rungs.alarms.history += [(name, moment) for name in rungs.alarms.ringing]
    assert rungs.promote().path is not None


def test_refuses_a_checkpoint_that_dev_does_not_serve_or_is_not_built(chat, rungs):
    serves = chat.deployment().entry
    schemes = ["bf16" if serves.scheme == "int8" else "int8"]
    override = {"models": {"chat": {"quantization": {"schemes": schemes}}}}
    rungs.repository.edit("environments/dev.yaml", override)
    rungs.repository.commit()
    says = f"dev does not serve checkpoint {serves.checkpoint_key}"
    with pytest.raises(DeployFailedError, match=says):
        rungs.promote()
    chat.write(context={"max_model_len": 8192, "prompt_p95": 2900, "output_p95": 400})
    (rungs.root / "models/chat.lock.yaml").unlink()
    rungs.repository.commit()
    with pytest.raises(DeployFailedError) as refused:
        rungs.promote()
    assert "chat' has no checkpoint to serve" in str(refused.value)
    assert "roundhouse build --env dev --model chat` and commit its lock, then promote" in str(
        refused.value
    )


def other(chat, bucket, name):
    entry = chat.deployment().entry
    stored = chat.dev if bucket == "dev" else chat.prod
    return stored, f"{entry.prefix}{name}" if name != "record" else entry.prefix[:-1] + ".json"


@pytest.mark.parametrize(
    ("bucket", "name", "content", "says"),
    [
        ("dev", "config.json", None, "config.json: is not there, and the lock of chat names it"),
        ("dev", "config.json", b"[]", "two builds claim one key. Nothing was overwritten"),
        ("dev", "record", None, "json: is not there, and the lock of chat names it"),
        ("dev", "record", b"{}", "is not the signed record that the lock of chat holds"),
        ("prod", "config.json", b"[]", "two builds claim one key. Nothing was overwritten"),
        ("prod", "record", b"{}", "is not the signed record that the lock of chat holds"),
        ("prod", "more.safetensors", b"x", "every copy of the endpoint would load it; delete it"),
    ],
)
def test_refuses_what_is_not_as_the_lock_says(chat, rungs, bucket, name, content, says):
    stored, path = other(chat, bucket, name)
    stored.update({path: content})
    if content is None:
        del stored[path]
    with pytest.raises(DeployFailedError) as refused:
        rungs.promote()
    assert says in str(refused.value) and "\n" not in str(refused.value)
    assert read_promotion(rungs.root, "prod") is None
    assert f"checkpoints/{chat.deployment().entry.checkpoint_key}.json" not in chat.copies()
    if bucket == "prod":
        assert chat.prod[path] == content


def test_a_missing_file_of_a_chain_is_promoted_again_and_one_of_a_builder_built(chat, rungs):
    folder = rungs.root / "environments"
    prod = (folder / "prod.yaml").read_text()
    (folder / "staging.yaml").write_text(prod.replace("prod", "staging"))
    (folder / "prod.yaml").write_text(prod.replace("promotes_from: dev", "promotes_from: staging"))
    rungs.repository.commit()
    staging = rungs.s3.buckets.setdefault(PROD.replace("prod", "staging"), dict(chat.dev))
    lost = f"{chat.deployment().entry.prefix}config.json"
    del staging[lost], chat.dev[lost]
    says = "run `roundhouse promote --from dev --to staging`, then promote again"
    with pytest.raises(DeployFailedError, match=says):
        rungs.promote(source="staging")
    with pytest.raises(DeployFailedError, match="run `roundhouse build --env dev --model chat`"):
        rungs.promote(destination="staging")


OUTSIDE = {
    "serving": {
        "adapters": [{"name": "legal", "source": "adapters/faq"}],
    },
    "quantization": {"schemes": ["bf16"], "calibration": {"dataset": "texts/chat.txt"}},
    "endpoint": {"instance_types": ["ml.g5.12xlarge"]},
}
"""Files that a text generator names outside models/."""


def test_files_outside_models_are_built_from_promoted_and_moved(chat, rungs):
    adapter = "adapters/faq/adapter_config.json"
    chat.write(**OUTSIDE)
    texts = rungs.root / "texts/chat.txt"
    texts.parent.mkdir(exist_ok=True)
    texts.write_bytes((rungs.root / CALIBRATION).read_bytes())
    chat.build("bf16")
    names = {"texts/chat.txt", adapter}
    assert names <= {*named_files(read_tree(rungs.root))}
    rungs.promote()
    rungs.repository.commit("promotion")
    before = chat.promoted()
    assert before.adapters == chat.deployment().adapters and before.adapters
    config = json.loads((rungs.root / adapter).read_text())
    (rungs.root / adapter).write_text(json.dumps({**config, "lora_alpha": 8}))
    rungs.repository.commit()
    rungs.promote("chat")
    rungs.repository.commit("promotion of chat")
    assert chat.promoted().adapters == chat.deployment().adapters != before.adapters
    own = environment_paths(rungs.paths, "prod", Processes()).tree
    assert all((own / name).read_bytes() == (rungs.root / name).read_bytes() for name in names)


def rewrite(rungs, **changes):
    """Change what prod's promotion says of the text generator, and other fields of it."""
    promotion = read_promotion(rungs.root, "prod")
    fields = {name: changes.pop(name) for name in ("commit",) if name in changes}
    own = promotion.checkpoints["chat"].model_copy(update=changes)
    fields["checkpoints"] = {"chat": own}
    write_promotion(rungs.root, promotion.model_copy(update=fields))


def test_promotion_serves_its_checkpoint_whatever_the_plan_prefers_now(chat, rungs):
    types = ["ml.g5.2xlarge", "ml.g5.4xlarge"]
    chat.write(endpoint={"instance_types": types})
    serves = chat.deployment().entry
    earlier = entry_of("9" * 20, {**CONTENT, "config.json": b"[]"}, scheme="bf16")
    write_lock_entry(rungs.root / "models", "chat", earlier)
    rungs.repository.commit()
    rungs.promote()
    assert read_promotion(rungs.root, "prod").checkpoints["chat"].instance_type == types[0]
    assert chat.promoted().candidate == chat.deployment("prod").candidate
    rewrite(rungs, instance_type=types[1])
    assert chat.promoted().candidate.instance_type == types[1]
    assert chat.promoted().entry == serves
    (other,) = (item for item in chat.deployment().built if item != serves)
    for entry in (other, earlier):
        key = entry.checkpoint_key
        rewrite(rungs, checkpoint_key=key, files_sha256=entry.files_sha256)
        found = chat.promoted()
        assert (found.entry, found.candidate.scheme) == (entry, entry.scheme)
        assert found.problem is None and found.held_by[key] == "dev"
        assert {item.checkpoint_key: item.use for item in found.checkpoints}[key] == "serves"


def test_promotion_serves_where_the_plan_holds_no_more(chat, rungs):
    rungs.promote()
    serves = chat.promoted().entry
    chat.write(slo={"ttft_p95_ms": 1, "itl_p95_ms": 1, "concurrency": 8})
    assert "no instance type can serve this" in str(read_tree(rungs.root).faults[0])
    rewrite(rungs, commit=rungs.repository.commit())
    assert chat.promoted().entry == serves and not chat.promoted().candidate.holds


def test_refuses_a_promotion_whose_checkpoint_no_lock_has(chat, rungs):
    rungs.promote()
    rewrite(rungs, files_sha256="0" * 64)
    with pytest.raises(
        FaultsError, match="with files of 000000000000…, and at its commit its lock"
    ):
        chat.promoted()
    rewrite(rungs, checkpoint_key="0" * 20)
    with pytest.raises(FaultsError, match="and at its commit no lock has it"):
        chat.promoted()


def test_destroy_waits_for_checkpoints_that_are_still_to_be_promoted(chat, rungs):
    assert "chat" in unpromoted_models(rungs.paths, "dev")["prod"]
    rungs.promote()
    assert unpromoted_models(rungs.paths, "dev") == {}
