"""Engine archives of the runtime benchmark's networks, as a build publishes them.

A Triton model repository and a manifest without accuracy and benchmark, in FOLDER/archives/NAME;
The network stays in FOLDER/networks.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import onnxruntime

from benchmarks.runtimes.networks import CLASSES, SIZES, write_network
from benchmarks.runtimes.servers import REPOSITORY
from engine_build.packaging.archive import model_repository
from engine_build.packaging.repository import repository
from engine_build.packaging.served import Served
from onboarding.manifest import (
    MANIFEST_NAME,
    BuilderRecord,
    Manifest,
    ProfileRecord,
    RuntimeIdentity,
    TensorRecord,
)
from onboarding.serving_spec import ServingSpec
from onboarding.values import Precision, Runtime

TEXTS = ProfileRecord(batch=(1, 8, 32), sequence=(16, 64, 128))
PROFILES = {
    "bert-large-512": ProfileRecord(batch=(1, 8, 32), sequence=(16, 128, 512)),
    "vit": ProfileRecord(batch=(1, 8, 32)),
}
"""The server makes buckets between these; of every other name TEXTS."""


def network_name(name: str) -> str:
    """Return the network of an archive: `bert-large-512` is BERT-large with another profile."""
    return name.removesuffix("-512")


def write_archive(name: str, folder: Path, tokenizer: Path, *, cpu: bool) -> None:
    """Write the archive whole, or not at all; the network only where it is not there yet."""
    size = SIZES[network_name(name)]
    network = folder / "networks" / f"{network_name(name)}.onnx"
    if not network.is_file():
        network.parent.mkdir(parents=True, exist_ok=True)
        draft_network = network.with_name(f"draft-{name}.onnx")
        write_network(network_name(name), folder, draft_network, half=not cpu)
        draft_network.rename(network)
    final = folder / "archives" / name
    draft = final.with_name(f"{name}.draft")
    shutil.rmtree(draft, ignore_errors=True)
    inputs, outputs = _records(size.image, size.width)
    profile = PROFILES.get(name, TEXTS)
    served = Served(
        model=name,
        task="tensors" if size.image else "text-embedding",
        inputs=inputs,
        outputs=outputs,
        profiles=(profile,),
        max_batch_size=profile.batch[2],
        serving=ServingSpec(),
    )
    runtime: Runtime = "onnxruntime" if cpu else "onnxruntime-cuda"
    whole = repository(
        served,
        network,
        None if size.image else tokenizer,
        runtime=runtime,
        code_roots=(REPOSITORY,),
    )
    precision: Precision = "fp32" if cpu else "fp16"
    manifest = Manifest(
        model=name,
        task=served.task,
        engine_key="0" * 20,
        network_keys={precision: "1" * 20},
        platform="random-weights",
        runtime=RuntimeIdentity(name=runtime, version=onnxruntime.__version__),
        compute_capability="cpu" if cpu else _compute_capability(),
        requested_precision=precision,
        precision=precision,
        decision="for measuring",
        engine_file=whole.engine_file,
        tokenizer_file=whole.tokenizer_file,
        inputs=served.client_inputs,
        outputs=served.client_outputs,
        optimization_profiles=(profile,),
        max_batch_size=profile.batch[2],
        files=model_repository(draft, whole.files),
        accuracy=(),
        compile_checks=(),
        benchmark=(),
        load_seconds=0.0,
        host_memory_mib=0.0,
        builder=BuilderRecord(machine="x86_64", built_at="2026-01-01T00:00:00Z"),
    )
    (draft / MANIFEST_NAME).write_bytes(manifest.to_bytes())
    draft.rename(final)


def _compute_capability() -> str:
    import torch

    return "{}.{}".format(*torch.cuda.get_device_capability())


def _records(image: int, width: int) -> tuple[tuple[TensorRecord, ...], tuple[TensorRecord, ...]]:
    """Return the network's inputs and outputs."""
    if image:
        pixels = TensorRecord(name="pixel_values", datatype="FP32", shape=(-1, 3, image, image))
        return (pixels,), (TensorRecord(name="logits", datatype="FP32", shape=(-1, CLASSES)),)
    names = ("input_ids", "attention_mask", "token_type_ids")
    tokens = tuple(TensorRecord(name=name, datatype="INT64", shape=(-1, -1)) for name in names)
    return tokens, (TensorRecord(name="sentence_embedding", datatype="FP32", shape=(-1, width)),)
