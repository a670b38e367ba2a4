"""Engine archives of the benchmarks, as a build publishes them.

A Triton model repository, and a manifest without accuracy and benchmark.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import onnxruntime

from benchmarks.runtimes.networks import CLASSES, SIZES, TEXT_INPUTS, write_network
from benchmarks.runtimes.servers import REPOSITORY
from engine_build.packaging.archive import model_repository
from engine_build.packaging.repository import repository
from engine_build.packaging.served import Served
from onboarding.manifest import (
    MANIFEST_NAME,
    BuilderRecord,
    Manifest,
    PlanRecord,
    ProfileRecord,
    RuntimeIdentity,
    TensorRecord,
)
from onboarding.serving_spec import ServingSpec
from onboarding.values import Precision

TEXTS = ProfileRecord(batch=(1, 8, 32), sequence=(16, 64, 128))
PROFILES = {
    "bert-large-512": ProfileRecord(batch=(1, 8, 32), sequence=(16, 128, 512)),
    "vit": ProfileRecord(batch=(1, 8, 32)),
}
"""The server makes buckets between these; of every other name TEXTS."""


def network_name(name: str) -> str:
    """Return the network of an archive: `bert-large-512` is BERT-large with another profile."""
    return name.removesuffix("-512")


def write_model(name: str, folder: Path, tokenizer: Path) -> None:
    """Write FOLDER/archives/NAME; the network only where it is not in FOLDER/networks yet."""
    size = SIZES[network_name(name)]
    network = folder / "networks" / f"{network_name(name)}.onnx"
    if not network.is_file():
        network.parent.mkdir(parents=True, exist_ok=True)
        draft_network = network.with_name(f"draft-{name}.onnx")
        write_network(network_name(name), folder, draft_network)
        draft_network.rename(network)
    profile = PROFILES.get(name, TEXTS)
    if size.image:
        shape = (-1, 3, size.image, size.image)
        served = Served(
            model=name,
            task="tensors",
            inputs=(TensorRecord(name="pixel_values", datatype="FP32", shape=shape),),
            outputs=(TensorRecord(name="logits", datatype="FP32", shape=(-1, CLASSES)),),
            profiles=(profile,),
            max_batch_size=profile.batch[2],
            serving=ServingSpec(),
        )
    else:
        served = embedder(name, TEXT_INPUTS, size.width, profile)
    final = folder / "archives" / name
    write_cpu_archive(final, served, network, None if size.image else tokenizer)


def embedder(
    name: str, inputs: tuple[str, ...], width: int, profile: ProfileRecord, most_rows: int = 0
) -> Served:
    """Return an embedder of texts as it is served, in batches of `most_rows`, or the profile's."""
    vector = TensorRecord(name="sentence_embedding", datatype="FP32", shape=(-1, width))
    batching = {"dynamic_batching": {"max_batch_size": most_rows}} if most_rows else {}
    return Served(
        model=name,
        task="text-embedding",
        inputs=tuple(TensorRecord(name=key, datatype="INT64", shape=(-1, -1)) for key in inputs),
        outputs=(vector,),
        profiles=(profile,),
        max_batch_size=most_rows or profile.batch[2],
        serving=ServingSpec.model_validate(batching),
    )


def write_cpu_archive(final: Path, served: Served, network: Path, tokenizer: Path | None) -> None:
    """Write the archive of an FP32 network that ONNX Runtime serves on a CPU."""
    runtime = RuntimeIdentity(name="onnxruntime", version=onnxruntime.__version__)
    write_archive(final, served, network, tokenizer, "fp32", runtime)


def write_plan_archive(
    final: Path, served: Served, plan: Path, tokenizer: Path, compute_capability: str
) -> None:
    """Write the archive of an FP16 plan of this machine."""
    with plan.open("rb") as file:  # what trtexec --getPlanVersionOnly reads
        version = ".".join(map(str, file.read(28)[24:]))
    record = PlanRecord(tensorrt=version, layers=1, int8_layers=0, command="trtexec")
    runtime = RuntimeIdentity(name="tensorrt", version=version)
    more = {"plan": record, "compute_capability": compute_capability}
    write_archive(final, served, plan, tokenizer, "fp16", runtime, **more)


def write_archive(
    final: Path,
    served: Served,
    engine: Path,
    tokenizer: Path | None,
    precision: Precision,
    runtime: RuntimeIdentity,
    **more: Any,
) -> None:
    """Write the archive whole, or not at all; `more` are fields of its manifest."""
    draft = final.with_name(f"{final.name}.draft")
    shutil.rmtree(draft, ignore_errors=True)
    whole = repository(served, engine, tokenizer, runtime=runtime.name, code_roots=(REPOSITORY,))
    fields = {
        "model": served.model,
        "task": served.task,
        "engine_key": "0" * 20,
        "network_keys": {precision: "1" * 20},
        "platform": "random-weights",
        "runtime": runtime,
        "compute_capability": "cpu",
        "requested_precision": precision,
        "precision": precision,
        "decision": "for measuring",
        "engine_file": whole.engine_file,
        "tokenizer_file": whole.tokenizer_file,
        "inputs": served.client_inputs,
        "outputs": served.client_outputs,
        "optimization_profiles": served.profiles,
        "max_batch_size": served.max_batch_size,
        "files": model_repository(draft, whole.files),
        "accuracy": (),
        "compile_checks": (),
        "benchmark": (),
        "load_seconds": 0.0,
        "host_memory_mib": 0.0,
        "builder": BuilderRecord(machine="x86_64", built_at="2026-01-01T00:00:00Z"),
    }
    (draft / MANIFEST_NAME).write_bytes(Manifest.model_validate(fields | more).to_bytes())
    draft.rename(final)
