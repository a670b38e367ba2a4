"""The model repository of an engine: which files lie where in the archive, by task and by what it
runs on.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from engine_build.packaging.archive import (
    CPU_TWIN,
    OVER_LONG,
    PASSPORT,
    TOKENIZER,
    UNTRUNCATED,
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
        return _cpu_twin(texts, served, engine, tokenizer, code_roots)
    if tokenizer is None:
        return Repository(
            files={**texts, f"{model}/1/model.plan": engine},
            engine_file=f"{model}/1/model.plan",
            tokenizer_file=None,
        )
    return _ensemble(texts, served, engine, tokenizer, code_roots)


def _cpu_twin(
    texts: dict[str, str],
    served: Served,
    engine: Path,
    tokenizer: Path | None,
    code_roots: tuple[Path, ...],
) -> Repository:
    folder = f"{served.model}/1"
    code = _code(
        folder,
        CPU_TWIN,
        refuses_long_texts=served.is_text and not served.serving.auto_truncate,
        roots=code_roots,
    )
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
        **_code(
            before, TOKENIZER, refuses_long_texts=not served.serving.auto_truncate, roots=code_roots
        ),
        f"{before}/tokenizer.json": tokenizer,
        plan: engine,
    }
    return Repository(files=files, engine_file=plan, tokenizer_file=f"{before}/tokenizer.json")


def _code(
    folder: str, name: str, *, refuses_long_texts: bool, roots: tuple[Path, ...]
) -> dict[str, Path]:
    """A model of the python backend; the one that refuses long texts imports the other by its name."""
    model = f"{UNTRUNCATED}/{name}" if refuses_long_texts else name
    more = {name: name, OVER_LONG: f"{UNTRUNCATED}/{OVER_LONG}"} if refuses_long_texts else {}
    named = {"model.py": model, "passport.py": PASSPORT, **more}
    return {f"{folder}/{each}": backend_file(roots, carried) for each, carried in named.items()}
