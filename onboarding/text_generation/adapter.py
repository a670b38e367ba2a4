"""A LoRA adapter: its configuration and its tensors' headers, and whether it fits a base model.

Source: `PEFTHelper` and `LoRAModel.from_local_checkpoint` of vLLM 0.30.0.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onboarding.text_generation.checkpoint import (
    FLOATS,
    PICKLES,
    Checkpoint,
    CheckpointError,
    TensorHeader,
    read_header,
)
from onboarding.text_generation.platforms import adapter_support

ADAPTER_CONFIGURATION, ADAPTER_WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
ENGINE_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""What vLLM takes as --max-lora-rank (MaxLoRARanks of vllm/config/lora.py)."""
NOT_SERVED = {
    "use_dora": "is a DoRA adapter, which vLLM does not serve",
    "modules_to_save": "replaces whole modules (modules_to_save), which vLLM does not do",
    "rank_pattern": "has a rank of its own for some modules, and vLLM scales all by one",
    "alpha_pattern": "has an alpha of its own for some modules, and vLLM scales all by one",
}
"""Keys of adapter_config.json that must be empty; of the last two vLLM says nothing."""
EMBEDDINGS, OUTPUT = "embed_tokens", "lm_head"
_PART = re.compile(
    r"(?:base_model\.model\.)?(?P<module>.+)\.(?:lora_(?P<linear>[AB])\.weight"
    r"|lora_embedding_(?P<embedding>[AB]))"
)
_UNTRAINED = (".embed_tokens.base_layer.weight", ".lm_head.base_layer.weight")
"""Ends of tensors of the base model that peft may save beside; vLLM leaves them out."""
_PREFIX = re.compile(r"^(?:(?:language_model|model|text_model|transformer)\.)+")


@dataclass(frozen=True, kw_only=True)
class Adapter:
    """A LoRA adapter as its files say.

    `base_model` is the name that it was trained on; None: not said. `modules` has the shapes of the
    matrices A, (rank, inputs), and B, (outputs, rank), by the name of the base model's module.
    """

    rank: int
    base_model: str | None
    modules: Mapping[str, tuple[tuple[int, ...], tuple[int, ...]]]


def engine_rank(ranks: Iterable[int]) -> int:
    """Return the least --max-lora-rank that holds adapters of these ranks."""
    most = max(ranks)
    return next(rank for rank in ENGINE_RANKS if rank >= most)


def read_adapter(folder: Path) -> Adapter:
    """Return the adapter of a folder. Raises CheckpointError for one that vLLM would not serve."""
    pickles = sorted(file.name for file in folder.rglob("*") if file.suffix in PICKLES)
    if pickles:
        raise CheckpointError(
            f"{pickles[0]} is a pickle, which runs code when it is loaded",
            f"save the adapter with peft's safe_serialization, as {ADAPTER_WEIGHTS}, and take the "
            "pickle out",
        )
    for name in (ADAPTER_CONFIGURATION, ADAPTER_WEIGHTS):
        if not (folder / name).is_file():
            raise CheckpointError(f"has no {name}", "save it with peft's save_pretrained")
    config = _configuration(folder / ADAPTER_CONFIGURATION)
    base = config.get("base_model_name_or_path")
    return Adapter(
        rank=config["r"],
        base_model=base if isinstance(base, str) and base else None,
        modules=_modules(read_header(folder / ADAPTER_WEIGHTS)),
    )


def adapter_problem(adapter: Adapter, checkpoint: Checkpoint) -> str | None:
    """Return why an adapter's matrices do not fit a checkpoint; None: they do.

    vLLM leaves out matrices of layers that the base model does not have, in silence.
    """
    base, kind = _base_modules(checkpoint), checkpoint.text_config.get("model_type")
    taken = embedding_modules(kind)
    for module, (a_shape, b_shape) in adapter.modules.items():
        name = _PREFIX.sub("", module)
        if name not in base:
            return f"its matrices are for {module}, which the base model does not have"
        if name in (EMBEDDINGS, OUTPUT) and name not in taken:
            return f"its matrices are for {module}, to which vLLM takes no adapter in a {kind}"
        weight = base[name]
        if weight is None:
            continue
        rows, columns = weight
        is_embedding = name.endswith("embed_tokens")
        inputs, outputs = (rows, columns) if is_embedding else (columns, rows)
        if (a_shape[1], b_shape[0]) != (inputs, outputs):
            return (
                f"its matrices of {module} are for {a_shape[1]} inputs and {b_shape[0]} outputs, "
                f"and the base model's has {inputs} and {outputs}"
            )
    return None


def embedding_modules(model_type: str | None) -> tuple[str, ...]:
    """Return which of embeddings and output layer take an adapter; both of an unknown model."""
    rows = adapter_support()
    if model_type is None or model_type in rows.embeddings_and_output:
        return EMBEDDINGS, OUTPUT
    return (EMBEDDINGS,) if model_type in rows.embeddings else ()


def architecture_without_adapters(checkpoint: Checkpoint) -> str | None:
    """Return the architecture of a checkpoint for which vLLM takes no adapter; None: it does."""
    names = checkpoint.config.get("architectures")
    known = adapter_support().without_adapters
    found = known.intersection(map(str, names)) if isinstance(names, list) else ()
    return next(iter(sorted(found)), None)


def _base_modules(checkpoint: Checkpoint) -> dict[str, tuple[int, int] | None]:
    """Return rows and columns of each module's weight; None where they are packed or not two."""
    found: dict[str, tuple[int, int] | None] = {}
    for name, tensor in checkpoint.tensors.items():
        module, _, part = name.rpartition(".")
        is_matrix = part == "weight" and tensor.dtype in FLOATS and len(tensor.shape) == 2
        shape = (tensor.shape[0], tensor.shape[1]) if is_matrix else None
        key = _PREFIX.sub("", module)
        found[key] = shape if shape is not None else found.get(key)
    if checkpoint.text_config.get("tie_word_embeddings"):
        found.setdefault("lm_head", found.get("embed_tokens"))
    return found


def _configuration(path: Path) -> dict[str, Any]:
    """Return adapter_config.json. Raises CheckpointError for what vLLM does not serve."""
    again = "save the adapter again with peft"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path.name} is no JSON", again) from error
    if not isinstance(config, dict) or config.get("peft_type", "LORA") != "LORA":
        raise CheckpointError(
            f"{path.name} describes no LoRA adapter", "train one with peft's LoraConfig"
        )
    for key in ("r", "lora_alpha"):
        value = config.get(key)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise CheckpointError(f"{path.name} has no {key} of 1 or more", again)
    if "target_modules" not in config:
        raise CheckpointError(f"{path.name} has no target_modules", again)
    for key, sentence in NOT_SERVED.items():
        if config.get(key):
            raise CheckpointError(
                f"{sentence} ({key} of {path.name})", "train it without, or merge it into the model"
            )
    if config.get("bias", "none") != "none":
        raise CheckpointError(
            f"trains biases (bias of {path.name}), which vLLM does not serve",
            "train it with bias: none",
        )
    return config


def _modules(
    tensors: Mapping[str, TensorHeader],
) -> dict[str, tuple[tuple[int, ...], tuple[int, ...]]]:
    """Return the shapes of both matrices of each module. Raises CheckpointError."""
    shapes: dict[str, dict[str, tuple[int, ...]]] = {}
    for name, tensor in tensors.items():
        if name.endswith(_UNTRAINED):
            continue
        part = _PART.fullmatch(name)
        if part is None or len(tensor.shape) != 2:
            raise CheckpointError(
                f"{ADAPTER_WEIGHTS} holds {name}, which is no matrix of a LoRA adapter",
                "save the adapter alone, with peft's save_pretrained",
            )
        shapes.setdefault(part["module"], {})[part["linear"] or part["embedding"]] = tensor.shape
    if not shapes:
        raise CheckpointError(f"{ADAPTER_WEIGHTS} holds no tensor", "save the trained adapter")
    for module, parts in shapes.items():
        if parts.keys() != {"A", "B"} or parts["A"][0] != parts["B"][1]:
            raise CheckpointError(
                f"{ADAPTER_WEIGHTS} has no pair of matrices of one rank for {module}",
                "save the adapter again with peft",
            )
    return {module: (parts["A"], parts["B"]) for module, parts in shapes.items()}
