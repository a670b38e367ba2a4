"""Prompts of an embedder: those that its checkpoint declares, and those of its model file.

Source: config_sentence_transformers.json, as sentence-transformers' `encode()` reads it.
"""

from __future__ import annotations

from pathlib import Path

from engine_build.errors import SourceFault
from engine_build.sources.checkpoint import read_json
from engine_build.sources.embedding import embedding_pipeline
from onboarding.manifest import Prompts
from onboarding.model_spec import ModelSpec

CONFIGURATION = "config_sentence_transformers.json"


def served_prompts(source: Path, model: ModelSpec) -> Prompts | None:
    """Return the prompts that requests may name; None where there are none. Raises SourceFault.

    `source` is a checkpoint's folder or an ONNX file, which declares none.
    """
    if model.task != "text-embedding":
        return None
    declared = read_json(source / CONFIGURATION, {}) if source.is_dir() else {}
    texts = _declared_texts(declared) | (model.source.prompts or {})
    default = model.source.default_prompt_name
    if default is None:
        default = declared.get("default_prompt_name")
    if default is not None and default not in texts:
        raise SourceFault(
            f"default_prompt_name is {default!r}, but the prompts are "
            f"{', '.join(sorted(texts)) or 'none'}; name one of them, or add it to "
            "`source.prompts` in the model file."
        )
    if not texts:
        return None
    if any(texts.values()) and source.is_dir() and not embedding_pipeline(source).includes_prompt:
        raise SourceFault(
            "the checkpoint leaves its prompts' tokens out of its pooling (include_prompt is false "
            "in the Pooling module's config.json), which no network here does; serve a checkpoint "
            f"whose {CONFIGURATION} and model file name no prompts, or one that pools them."
        )
    return Prompts(texts=texts, default_prompt_name=default)


def _declared_texts(declared: dict[str, object]) -> dict[str, str]:
    """Return the checkpoint's prompts; sentence-transformers reads null as no prefix."""
    given = declared.get("prompts") or {}
    if not isinstance(given, dict) or not all(
        text is None or isinstance(text, str) for text in given.values()
    ):
        raise SourceFault(
            f"the prompts in {CONFIGURATION} of the checkpoint are {str(given)[:80]}; allowed: an "
            "object of texts by name. Save the checkpoint again."
        )
    return {name: text or "" for name, text in given.items()}
