"""The model repository of an engine.

Which files lie where in the archive, by task and by what it runs on.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from engine_build.packaging.archive import (
    MANIFEST_CHECK,
    ONNXRUNTIME_BACKEND,
    TOKENIZER,
    backend_file,
)
from engine_build.packaging.model_configuration import configurations
from engine_build.packaging.served import Served, member

ENSEMBLE = "An ensemble has no file of its own, and Triton wants its version folder.\n"


@dataclass(frozen=True, kw_only=True)
class Repository:
    """Files by archive path, a text as it stands; and the two that a server looks for."""

    files: dict[str, Path | str]
    engine_file: str
    tokenizer_file: str | None


def repository(
    served: Served,
    engine: Path,
    tokenizer: Path | None,
    *,
    is_cpu: bool,
    code_roots: tuple[Path, ...],
) -> Repository:
    """One model folder; for a text task on a GPU the ensemble's and its two members'.

    Raises InputRefused.
    """
    texts = configurations(served, is_cpu=is_cpu)
    model = served.model
    if is_cpu:
        return _single_model(texts, served, engine, tokenizer, code_roots)
    if tokenizer is None:
        return Repository(
            files={**texts, f"{model}/1/model.plan": engine},
            engine_file=f"{model}/1/model.plan",
            tokenizer_file=None,
        )
    return _ensemble(texts, served, engine, tokenizer, code_roots)


def _single_model(
    texts: dict[str, str],
    served: Served,
    engine: Path,
    tokenizer: Path | None,
    code_roots: tuple[Path, ...],
) -> Repository:
    folder = f"{served.model}/1"
    code = _code(folder, ONNXRUNTIME_BACKEND, code_roots)
    files: dict[str, Path | str] = {**texts, **code, f"{folder}/model.onnx": engine}
    if tokenizer is not None:
        files[f"{folder}/tokenizer.json"] = tokenizer
    return Repository(
        files=files,
        engine_file=f"{folder}/model.onnx",
        tokenizer_file=None if tokenizer is None else f"{folder}/tokenizer.json",
    )


def _ensemble(
    texts: dict[str, str],
    served: Served,
    engine: Path,
    tokenizer: Path,
    code_roots: tuple[Path, ...],
) -> Repository:
    model = served.model
    plan, before = f"{member(model, 'engine')}/1/model.plan", f"{member(model, 'tokenizer')}/1"
    files: dict[str, Path | str] = {
        **texts,
        f"{model}/1/ensemble.txt": ENSEMBLE,
        **_code(before, TOKENIZER, code_roots),
        f"{before}/tokenizer.json": tokenizer,
        plan: engine,
    }
    return Repository(files=files, engine_file=plan, tokenizer_file=f"{before}/tokenizer.json")


def _code(folder: str, name: str, roots: tuple[Path, ...]) -> dict[str, Path]:
    """A model of the python backend, and the manifest check that it imports."""
    return {
        f"{folder}/model.py": backend_file(roots, name),
        f"{folder}/{MANIFEST_CHECK}": backend_file(roots, MANIFEST_CHECK),
    }
