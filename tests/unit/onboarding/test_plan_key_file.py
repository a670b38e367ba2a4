"""The key of an archive's plan, as its manifest has it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from onboarding.plan_key_file import is_of_plan, plan_key_path, plan_key_text
from tests.unit.onboarding.manifests import lock_entry

pytestmark = pytest.mark.unit
MANIFEST = lock_entry("example", "a" * 20).manifest
KEY = "b" * 20


def test_plan_s_key_is_the_digest_of_a_file_beside_the_engine():
    digest = hashlib.sha256(plan_key_text(KEY).encode()).hexdigest()
    path = plan_key_path(MANIFEST.engine_file)
    assert Path(path).parent == Path(MANIFEST.engine_file).parent
    known = MANIFEST.model_copy(update={"files": {**MANIFEST.files, path: digest}})
    assert is_of_plan(known, KEY) and not is_of_plan(known, "c" * 20)
    # A server of before reads it: no field is new.
    assert json.loads(known.to_bytes()).keys() == json.loads(MANIFEST.to_bytes()).keys()


def test_archive_of_before_is_of_no_plan():
    assert not is_of_plan(MANIFEST, KEY)
