"""Safetensors files rewritten: cast to 16 bits, and none above what one upload takes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from engine_build.errors import SourceFault
from engine_build.store import LARGEST_OBJECT_BYTES
from onboarding.text_generation.checkpoint import FLOATS, INDEX, SINGLE, Checkpoint, shard_names

LARGEST_SHARD_BYTES = 4 * 1000**3
NAMES = {"bf16": "bfloat16", "fp16": "float16"}
"""PyTorch's name of each scheme that computes nothing."""
HEADERS = {"bf16": "BF16", "fp16": "F16"}


def needs_rewriting(folder: Path, checkpoint: Checkpoint, scheme: str) -> bool:
    """Return True where tensors are of another type than the scheme's, or a file is too large.

    Weights that are quantized already keep their types.
    """
    if any((folder / name).stat().st_size > LARGEST_OBJECT_BYTES for name in shard_names(folder)):
        return True
    return not checkpoint.is_quantized and any(
        tensor.dtype in FLOATS and tensor.dtype != HEADERS.get(scheme, tensor.dtype)
        for tensor in checkpoint.tensors.values()
    )


def rewrite_shards(folder: Path, target: Path, scheme: str | None) -> None:
    """Write the tensors of a folder into `target`, floats cast to the scheme's 16 bits.

    None casts nothing. Raises SourceFault for numbers that FP16 does not hold.
    """
    from safetensors.torch import save_file

    places: dict[str, str] = {}
    parts, size, files = dict[str, Any](), 0, list[Path]()

    def write_part() -> None:
        path = target / f"part-{len(files)}.safetensors"
        save_file(parts, str(path), metadata={"format": "pt"})
        places.update(dict.fromkeys(parts, path.name))
        files.append(path)

    for name, tensor in _tensors(folder, scheme):
        if parts and size + tensor.nbytes > LARGEST_SHARD_BYTES:
            write_part()
            parts, size = {}, 0
        parts[name] = tensor
        size += tensor.nbytes
    write_part()
    if len(files) == 1:
        files[0].rename(target / SINGLE)
        return
    names = {
        file.name: f"model-{number:05}-of-{len(files):05}.safetensors"
        for number, file in enumerate(files, 1)
    }
    for file in files:
        file.rename(target / names[file.name])
    total = sum((target / name).stat().st_size for name in names.values())
    weight_map = {name: names[file] for name, file in sorted(places.items())}
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (target / INDEX).write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")


def write_dtype(path: Path, scheme: str) -> None:
    """Write the type of the weights into a config.json."""
    config = json.loads(path.read_text(encoding="utf-8"))
    keys = [key for key in ("dtype", "torch_dtype") if key in config] or ["dtype"]
    path.unlink()
    path.write_text(
        json.dumps({**config, **dict.fromkeys(keys, NAMES[scheme])}, indent=2) + "\n",
        encoding="utf-8",
    )


def _tensors(folder: Path, scheme: str | None) -> Iterator[tuple[str, Any]]:
    import torch
    from safetensors import safe_open

    kind = None if scheme is None else getattr(torch, NAMES[scheme])
    for file_name in shard_names(folder):
        with safe_open(folder / file_name, framework="pt") as file:
            for name in sorted(file.keys()):
                tensor = file.get_tensor(name)
                if kind is not None and tensor.is_floating_point():
                    tensor = tensor.to(kind)
                    if not bool(torch.isfinite(tensor).all()):
                        raise SourceFault(
                            f"tensor {name} holds numbers that {scheme} does not; choose bf16."
                        )
                yield name, tensor.contiguous()
