"""Models as PyTorch modules and ONNX networks: random weights, or those of a checkpoint."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers

from engine_build.sources.pooling import PoolingHead
from engine_build.sources.source_model import Classifier, SentenceEmbedder, SourceModel

TEXT_INPUTS = ("input_ids", "attention_mask", "token_type_ids")
IMAGE_INPUTS = ("pixel_values",)
CLASSES = 1000
OPSET = 17


@dataclass(frozen=True, kw_only=True)
class Size:
    """A transformer's size; `image` is the edge of its square images, 0 for texts."""

    width: int
    layers: int
    heads: int
    inner: int
    image: int = 0


SIZES = {
    "bert-large": Size(width=1024, layers=24, heads=16, inner=4096),
    "minilm": Size(width=384, layers=6, heads=12, inner=1536),
    "vit": Size(width=768, layers=12, heads=12, inner=3072, image=224),
}


def module(name: str, folder: Path | None = None) -> Any:
    """Return the module in FP32 on the CPU: an embedder of texts, or a classifier of images.

    Its weights are those of FOLDER/checkpoints/NAME where that is a folder, elsewhere random and
    the same in every process.
    """
    if folder is not None and (checkpoint := checkpoint_folder(name, folder)) is not None:
        return SourceModel(checkpoint, longest=128).module
    size = SIZES[name]
    torch.manual_seed(0)
    sizes = {
        "hidden_size": size.width,
        "num_hidden_layers": size.layers,
        "num_attention_heads": size.heads,
        "intermediate_size": size.inner,
        "attn_implementation": "eager",
    }
    if size.image:
        images = {"image_size": size.image, "patch_size": 16, "num_labels": CLASSES}
        vit = transformers.ViTForImageClassification(transformers.ViTConfig(**sizes, **images))
        return Classifier(vit, IMAGE_INPUTS).eval()
    config = transformers.BertConfig(vocab_size=30522, **sizes)
    encoder = transformers.BertModel(config, add_pooling_layer=False).eval()
    return SentenceEmbedder(encoder, TEXT_INPUTS, PoolingHead(("mean",), normalize=True)).eval()


def checkpoint_folder(name: str, folder: Path) -> Path | None:
    """Return where a model's trained weights are; None where it has random ones."""
    checkpoint = folder / "checkpoints" / name
    return checkpoint if checkpoint.is_dir() else None


def write_network(name: str, folder: Path, path: Path) -> None:
    """Write the network in FP32."""
    export(module(name, folder), _example(SIZES[name]), path)


def export(module: Any, example: tuple[Any, ...], path: Path) -> None:
    """Write a module with `inputs` and `output`; each input's axis 0 is the batch.

    Of `input_ids` and what stands beside them axis 1 is the sequence.
    """
    dynamic = {0: "batch", 1: "sequence"} if "input_ids" in module.inputs else {0: "batch"}
    axes = dict.fromkeys(module.inputs, dynamic) | {module.output: {0: "batch"}}
    with torch.inference_mode(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module,
            example,
            str(path),
            input_names=list(module.inputs),
            output_names=[module.output],
            dynamic_axes=axes,
            opset_version=OPSET,
            dynamo=False,
        )


def _example(size: Size) -> tuple[Any, ...]:
    if size.image:
        return (torch.randn(2, 3, size.image, size.image),)
    ids = torch.randint(5, 30000, (2, 16))
    mask = torch.ones_like(ids)
    mask[1, 9:] = 0
    return ids, mask, ids * 0
