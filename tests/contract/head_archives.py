"""Archives as a build lays them out; a plan is stood in for by its network."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from engine_build.packaging.archive import model_repository
from engine_build.packaging.repository import Repository, repository
from engine_build.packaging.served import member
from onboarding.manifest import Manifest
from tests.contract.model_config import PROTOBUF, format_configuration, parse_configuration
from tests.fixtures.tiny_embedder.archive import HERE, REPOSITORY, Tiny, write_manifest

STAND_IN = Path(__file__).with_name("engine_stand_in.py")


def on_a_cpu(text: str) -> str:
    """The plan's configuration with another backend.

    Inputs, outputs, batching and warm-up stay as generated.
    """
    config = parse_configuration(text)
    config.backend, config.default_model_filename = "python", ""
    config.ClearField("optimization")
    for group in config.instance_group:
        group.kind = PROTOBUF.ModelInstanceGroup.KIND_CPU
        group.ClearField("profile")
    return format_configuration(config)


def with_stand_in(laid: Repository, model: str, engine: Path) -> Repository:
    """The model repository of a GPU, with its plan stood in for by a network."""
    part = member(model, "engine")
    engine_file, configuration = f"{part}/1/model.onnx", f"{part}/config.pbtxt"
    files = {name: file for name, file in laid.files.items() if name != laid.engine_file}
    files |= {engine_file: engine, f"{part}/1/model.py": STAND_IN}
    files[configuration] = on_a_cpu(str(files[configuration]))
    return replace(laid, files=files, engine_file=engine_file)


def write_form(
    root: Path,
    tiny: Tiny,
    form: str,
    *,
    network: Path | None = None,
    tokenizer: Path | None = HERE / "tokenizer.json",
    **fields: Any,
) -> Manifest:
    """Write an archive as it is built, of form cpu or ensemble: there its plan is stood in for."""
    is_cpu = form == "cpu"
    network = HERE / f"{tiny.network}.onnx" if network is None else network
    runtime = "onnxruntime" if is_cpu else "tensorrt"
    laid = repository(tiny.served, network, tokenizer, runtime=runtime, code_roots=(REPOSITORY,))
    laid = laid if is_cpu else with_stand_in(laid, tiny.model, network)
    model_repository(root, laid.files)
    files = {"engine_file": laid.engine_file, "tokenizer_file": laid.tokenizer_file}
    return write_manifest(root, tiny, **files, **fields)
