"""The model repository of an engine: the files of its archive, by task and by what it runs on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from engine_build.onnx_graph.data_file import DATA_NAME, data_file
from engine_build.packaging.archive import backend_file
from engine_build.packaging.model_configuration import check_served, configurations
from engine_build.packaging.served import Served, member, processing_file
from onboarding.values import BASELINE_RUNTIMES, Runtime

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
    runtime: Runtime,
    code_roots: tuple[Path, ...],
) -> Repository:
    """One model folder; those of an ensemble for an encoder on a GPU, and around a user's code.

    A baseline has no model configuration. A network's data file lies beside it; a user's files are
    of the first root. Raises InputRefused.
    """
    model, is_cpu = served.model, runtime == "onnxruntime"
    if runtime in BASELINE_RUNTIMES:
        # Triton has no model of it, and loads none.
        check_served(served, is_cpu=True)
        return _with_engine({}, engine, tokenizer, f"{model}/1/model{engine.suffix}", f"{model}/1")
    files: dict[str, Path | str] = {**configurations(served, is_cpu=is_cpu)}
    plan_folder = code_folder = f"{model}/1"
    part = None if is_cpu else served.encoder
    if served.is_processed or part is not None:
        plan_folder = f"{member(model, 'engine')}/1"
        code_folder = plan_folder if part is None else f"{member(model, part)}/1"
        files[f"{model}/1/ensemble.txt"] = ENSEMBLE
    for folder, names in _python_models(served, code_folder, is_cpu=is_cpu).items():
        for name, carried in names.items():
            files[f"{folder}/{name}"] = backend_file(code_roots, carried)
    files.update(_processing_files(served, code_roots))
    engine_file = f"{plan_folder}/{'model.onnx' if is_cpu else 'model.plan'}"
    return _with_engine(files, engine, tokenizer, engine_file, code_folder)


def _with_engine(
    files: dict[str, Path | str],
    engine: Path,
    tokenizer: Path | None,
    engine_file: str,
    code_folder: str,
) -> Repository:
    """Return the files with the engine, what lies beside it, and its tokenizer."""
    files[engine_file] = engine
    if (data := data_file(engine)) is not None:
        files[f"{engine_file.rpartition('/')[0]}/{DATA_NAME}"] = data
    tokenizer_file = None
    if tokenizer is not None:
        tokenizer_file = f"{code_folder}/tokenizer.json"
        files[tokenizer_file] = tokenizer
    return Repository(files=files, engine_file=engine_file, tokenizer_file=tokenizer_file)


def _processing_files(
    served: Served, code_roots: tuple[Path, ...]
) -> Iterator[tuple[str, Path | str]]:
    """Yield the models of a user's code, and the files that they import."""
    for part, spec in (
        ("preprocessing", served.serving.preprocessing),
        ("postprocessing", served.serving.postprocessing),
    ):
        if spec is None:
            continue
        folder = f"{member(served.model, part)}/1"
        yield f"{folder}/model.py", backend_file(code_roots, "processing_backend.py")
        for name in ("manifest_check.py", "processing.py", "answer_check.py"):
            yield f"{folder}/{name}", backend_file(code_roots, name)
        yield processing_file(served.model, part), code_roots[0] / spec.file


def _python_models(served: Served, code_folder: str, *, is_cpu: bool) -> dict[str, dict[str, str]]:
    """Return the files of each model of the python backend: its own, and what it imports."""
    imported = {name: name for name in ("manifest_check.py", "heads.py")}
    reading = imported
    if served.encoder == "processor":
        reading = imported | {name: name for name in ("images.py", "image_requests.py")}
    if is_cpu:
        return {code_folder: {"model.py": "onnxruntime_backend.py"} | reading}
    models = {}
    if served.encoder is not None:
        backend = "image_backend.py" if served.encoder == "processor" else "tokenizer.py"
        models[code_folder] = {"model.py": backend} | reading
    if served.has_head:
        models[f"{member(served.model, 'head')}/1"] = {"model.py": "head_backend.py"} | imported
    return models
