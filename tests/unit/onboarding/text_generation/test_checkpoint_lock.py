"""Records of checkpoints and their keys."""

from __future__ import annotations

import pytest

from onboarding.lock import read_lock, write_lock_entry
from onboarding.text_generation.checkpoint_key import (
    checkpoint_key,
    checkpoint_prefix,
    checkpoint_schemes,
    dataset_paths,
    is_gated,
)
from onboarding.text_generation.checkpoint_lock import (
    CheckpointRecordError,
    GenerationLock,
    read_record,
    record_knee,
)
from tests.fixtures.signer import Signer
from tests.unit.onboarding.test_locks import KNEE
from tests.unit.onboarding.text_generation.entries import checkpoint_entry
from tests.unit.onboarding.text_generation.test_planner import _spec

CALIBRATION = {"dataset": "models/data/a.txt", "samples": 8}
DIGESTS = {"models/data/a.txt": "1" * 64, "models/data/b.txt": "1" * 64, "models/task.yaml": "2"}


def key(number: int) -> str:
    return f"{number:020x}"


def test_record_is_the_same_from_a_lock_and_from_a_build(tmp_path):
    entry = checkpoint_entry(key(1))
    signed = entry.model_copy(update={"signature": Signer().sign_manifest("e" * 64)})
    write_lock_entry(tmp_path, "chat", signed)
    record_knee(tmp_path, "chat", key(1), KNEE)
    locked = read_lock(tmp_path, "chat", GenerationLock).checkpoints[key(1)]
    assert locked.record == entry.record and read_record(entry.record) == entry
    assert locked.signed_sha256 == entry.signed_sha256


def test_refuses_a_record_of_other_files_or_another_form():
    record = checkpoint_entry().record
    with pytest.raises(CheckpointRecordError, match="do not have"):
        read_record(record.replace(b"b" * 64, b"f" * 64))
    with pytest.raises(CheckpointRecordError, match="canonical"):
        read_record(record + b"\n")


def _key(scheme: str = "int8", digests=DIGESTS, **changes) -> str:
    quantization = {"schemes": ["bf16", "int8"], "calibration": CALIBRATION}
    changes["quantization"] = quantization | changes.get("quantization", {})
    return checkpoint_key(_spec(**changes), scheme, digests)


def test_key_names_what_decides_the_files():
    own = _key()
    assert len(own) == 20 and checkpoint_prefix(own) == f"checkpoints/{own}/"
    task = {"task": {"file": "models/task.yaml", "drop": 0.1}}
    others = {
        _key("bf16"),
        _key(source={"huggingface": "acme/chat@" + "1" * 40}),
        _key(source={"path": "model"}),
        _key(quantization={"kv_cache": "fp8"}),
        _key(quantization={"calibration": {**CALIBRATION, "samples": 9}}),
        _key(quantization={"budget": {"top1": 0.5}}),
        _key(quantization={"budget": task}),
        _key(digests={**DIGESTS, "models/data/a.txt": "3" * 64}),
    }
    assert len(others | {own}) == 9


def test_key_is_the_same_whatever_serves_it():
    moved = {"calibration": {**CALIBRATION, "dataset": "models/data/b.txt"}}
    same = {
        _key(),
        _key(quantization=moved),
        _key(source={"headers": "models/data/70b.json"}),
        _key(slo={"concurrency": 99}),
        _key(endpoint={"instance_types": ["ml.g5.2xlarge"]}),
        _key(quantization={"schemes": ["int8", "awq"]}),
    }
    assert len(same) == 1
    assert _key("bf16") == _key("bf16", quantization={"budget": {"top1": 0.5}})


def test_checkpoint_that_is_quantized_already_has_its_own_scheme_alone():
    spec = _spec(quantization={"schemes": ["bf16", "int8"], "calibration": CALIBRATION})
    assert checkpoint_schemes(spec) == ("bf16", "int8")
    assert checkpoint_schemes(spec, "fp8") == ("fp8",)
    assert not is_gated(spec, "fp8", "fp8") and not is_gated(spec, "bf16")
    assert is_gated(spec, "int8") and is_gated(_spec(quantization={"kv_cache": "fp8"}), "bf16")
    assert dataset_paths(spec) == ("models/data/a.txt",)
