"""Manifests: what is written, and that those of before say what they said."""

from __future__ import annotations

import json

import pytest
from pydantic import ValidationError

from onboarding.lock import Lock, lock_text, write_lock_entry
from onboarding.manifest import Manifest, Prompts
from tests.unit.onboarding.manifests import lock_entry

MANIFEST = lock_entry("example", "a" * 20).manifest


def test_manifest_is_golden():
    """A change here changes every archive: raise RECIPE_VERSION when inputs give other bytes."""
    assert MANIFEST.sha256() == "1502529e2ea09349227518500a1d9fa6bc46114842b5fc7e1c04f0bdf80157aa"


def test_only_a_model_that_refuses_long_texts_says_so(tmp_path):
    assert MANIFEST.auto_truncate and "auto_truncate" not in json.loads(MANIFEST.to_bytes())
    entry = lock_entry("example", "a" * 20)
    refusing = entry.model_copy(
        update={"manifest": MANIFEST.model_copy(update={"auto_truncate": False})}
    )
    assert json.loads(refusing.manifest.to_bytes())["auto_truncate"] is False
    assert Manifest.from_bytes(refusing.manifest.to_bytes()) == refusing.manifest
    assert "auto_truncate" not in lock_text(Lock(model="example", engines={"a" * 20: entry}))
    assert "auto_truncate: false" in write_lock_entry(tmp_path, "example", refusing).read_text()


def test_only_a_model_with_prompts_has_them():
    assert MANIFEST.prompts is None and "prompts" not in json.loads(MANIFEST.to_bytes())
    prompts = Prompts(texts={"query": "find: ", "document": ""})
    known = Manifest.from_bytes(MANIFEST.model_copy(update={"prompts": prompts}).to_bytes())
    assert known.prompts == prompts and known.prompts.differ
    assert (prompts.prefix(), prompts.prefix("query")) == ("", "find: ")


def test_refuses_a_requirement_that_it_does_not_know():
    """So does a server that is older than `auto_truncate`."""
    data = json.loads(MANIFEST.to_bytes()) | {"auto_translate": False}
    with pytest.raises(ValidationError, match="auto_translate"):
        Manifest.from_bytes(json.dumps(data).encode())
