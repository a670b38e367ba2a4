"""An environment serves the checkpoint that its promotion names, whatever is newer."""

from __future__ import annotations

import dataclasses

import pytest

from onboarding.fault import FaultsError
from onboarding.promotion import read_promotion, write_promotion
from onboarding.text_generation.checkpoint_lock import (
    read_generation_lock,
    write_checkpoint_entry,
)
from onboarding.tree import read_tree
from roundhouse.deploy.destroy import unpromoted_models
from tests.unit.onboarding.text_generation.entries import CONTENT, entry_of

pytestmark = pytest.mark.unit


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
    write_checkpoint_entry(rungs.root / "models", "chat", earlier)
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


def test_lock_stays_as_it_is(chat, rungs):
    lock = read_generation_lock(rungs.root / "models", "chat")
    rungs.promote()
    assert read_generation_lock(rungs.root / "models", "chat") == lock
    assert not (rungs.root / "locks/prod/chat.lock.yaml").exists()
    assert dataclasses.replace(chat.promoted(), held_by={}).entry == chat.deployment().entry
