"""`python -m benchmarks.h200.programs.archive NAME FOLDER TOKENIZER [--cpu]`.

Writes an engine archive as a build publishes it, of a network with random weights: network,
tokenizer, manifest; no accuracy and no benchmark. `--cpu`: in FP32 for the CPU.
"""

from __future__ import annotations

import hashlib
import shutil
import sys
from pathlib import Path

import onnxruntime
import torch

from benchmarks.h200.programs.networks import SIZES, write_network
from benchmarks.manifest import embedder_manifest
from onboarding.manifest import MANIFEST_NAME, Manifest, ProfileRecord, RuntimeIdentity

PROFILE = ProfileRecord(batch=(1, 8, 32), sequence=(16, 64, 128))
"""The server makes buckets between these."""


def write_archive(name: str, folder: Path, tokenizer: Path, *, cpu: bool) -> None:
    """Write the archive whole, or not at all."""
    draft = folder.with_name(f"{folder.name}.draft")
    shutil.rmtree(draft, ignore_errors=True)
    version = draft / name / "1"
    version.mkdir(parents=True)
    write_network(name, version / "model.onnx", half=not cpu)
    shutil.copy(tokenizer, version / "tokenizer.json")
    (draft / MANIFEST_NAME).write_bytes(_manifest(name, draft, cpu=cpu).to_bytes())
    draft.rename(folder)


def _manifest(name: str, root: Path, *, cpu: bool) -> Manifest:
    files = {
        path.relative_to(root).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }
    precision = "fp32" if cpu else "fp16"
    capability = "cpu" if cpu else "{}.{}".format(*torch.cuda.get_device_capability())
    return embedder_manifest(
        name,
        width=SIZES[name].width,
        profile=PROFILE,
        network_keys={precision: "1" * 20},
        platform="random-weights",
        runtime=RuntimeIdentity(name="onnxruntime-cuda", version=onnxruntime.__version__),
        compute_capability=capability,
        requested_precision=precision,
        precision=precision,
        files=files,
    )


if __name__ == "__main__":
    name, folder, tokenizer, *options = sys.argv[1:]
    if not Path(folder).is_dir():
        write_archive(name, Path(folder), Path(tokenizer), cpu="--cpu" in options)
