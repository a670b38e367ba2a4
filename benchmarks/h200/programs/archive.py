"""`python -m benchmarks.h200.programs.archive NAME FOLDER TOKENIZER`.

An engine archive of a network with random weights.

It is what a build publishes, by hand: network, tokenizer, manifest; no accuracy and no benchmark.
`--cpu` makes FP32 for the CPU.
"""

from __future__ import annotations

import hashlib
import shutil
import sys
from pathlib import Path

import onnxruntime

from benchmarks.h200.programs.networks import SIZES, write_network
from onboarding.manifest import (
    MANIFEST_NAME,
    BuilderRecord,
    Manifest,
    ProfileRecord,
    RuntimeIdentity,
    TensorRecord,
)

PROFILE = ProfileRecord(batch=(1, 8, 32), sequence=(16, 64, 128))
"""The server makes buckets between these."""
CPU = "cpu"


def write_archive(name: str, folder: Path, tokenizer: Path, *, compute_capability: str) -> None:
    """Writes the archive whole, or not at all."""
    draft = folder.with_name(f"{folder.name}.draft")
    shutil.rmtree(draft, ignore_errors=True)
    version = draft / name / "1"
    version.mkdir(parents=True)
    write_network(name, version / "model.onnx", half=compute_capability != CPU)
    shutil.copy(tokenizer, version / "tokenizer.json")
    (draft / MANIFEST_NAME).write_bytes(_manifest(name, draft, compute_capability).to_bytes())
    draft.rename(folder)


def _manifest(name: str, root: Path, compute_capability: str) -> Manifest:
    files = {
        path.relative_to(root).as_posix(): _digest(path)
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }
    precision = "fp32" if compute_capability == CPU else "fp16"
    return Manifest.model_validate(
        {
            "model": name,
            "task": "text-embedding",
            "engine_key": "0" * 20,
            "network_keys": {precision: "1" * 20},
            "platform": "random-weights",
            "runtime": RuntimeIdentity(name="onnxruntime", version=onnxruntime.__version__),
            "compute_capability": compute_capability,
            "requested_precision": precision,
            "precision": precision,
            "decision": "random weights, for measuring servers",
            "engine_file": f"{name}/1/model.onnx",
            "tokenizer_file": f"{name}/1/tokenizer.json",
            "inputs": (TensorRecord(name="text", datatype="BYTES", shape=(-1, 1)),),
            "outputs": (
                TensorRecord(name="embedding", datatype="FP32", shape=(-1, SIZES[name].width)),
            ),
            "optimization_profiles": (PROFILE,),
            "max_batch_size": PROFILE.batch[2],
            "files": files,
            "accuracy": (),
            "compile_checks": (),
            "benchmark": (),
            "load_seconds": 0.0,
            "host_memory_mib": 0.0,
            "builder": BuilderRecord(machine="x86_64", built_at="2026-01-01T00:00:00Z"),
        }
    )


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def compute_capability() -> str:
    """That of the first GPU."""
    import torch

    major, minor = torch.cuda.get_device_capability()
    return f"{major}.{minor}"


def main(arguments: list[str]) -> None:
    """Writes one archive where none is."""
    cpu = "--cpu" in arguments
    name, folder, tokenizer = (argument for argument in arguments if argument != "--cpu")
    if not Path(folder).is_dir():
        write_archive(
            name,
            Path(folder),
            Path(tokenizer),
            compute_capability=CPU if cpu else compute_capability(),
        )


if __name__ == "__main__":
    main(sys.argv[1:])
