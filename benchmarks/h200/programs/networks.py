"""BERTs with the same random weights in every process: PyTorch modules, fused ONNX networks."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers

from engine_build.sources.pooling import PoolingHead
from engine_build.sources.source_model import SentenceEmbedder

INPUTS = ("input_ids", "attention_mask", "token_type_ids")
OPSET = 17


@dataclass(frozen=True, kw_only=True)
class Size:
    """A BERT's size."""

    width: int
    layers: int
    heads: int
    inner: int


SIZES = {
    "bert-large": Size(width=1024, layers=24, heads=16, inner=4096),
    "minilm": Size(width=384, layers=6, heads=12, inner=1536),
    "tiny": Size(width=64, layers=2, heads=2, inner=128),
}


def embedder(name: str) -> Any:
    """Return the module in FP32 on the CPU, with pooling and normalisation."""
    size = SIZES[name]
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=30522,
        hidden_size=size.width,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        intermediate_size=size.inner,
        attn_implementation="eager",
    )
    encoder = transformers.BertModel(config, add_pooling_layer=False).eval()
    return SentenceEmbedder(encoder, INPUTS, PoolingHead(("mean",), normalize=True)).eval()


def write_network(name: str, path: Path, *, half: bool) -> None:
    """Write the network, fused for ONNX Runtime; `half`: in FP16, with an FP32 answer."""
    from onnxruntime.transformers import optimizer

    plain = path.with_suffix(".plain.onnx")
    _export(embedder(name), plain)
    size = SIZES[name]
    network = optimizer.optimize_model(
        str(plain),
        model_type="bert",
        num_heads=size.heads,
        hidden_size=size.width,
        opt_level=0,
        use_gpu=half,
    )
    if half:
        network.convert_float_to_float16(keep_io_types=True)
    network.save_model_to_file(str(path))
    plain.unlink()


def _export(module: Any, path: Path) -> None:
    ids = torch.randint(5, 30000, (2, 16))
    mask = torch.ones_like(ids)
    mask[1, 9:] = 0
    axes = {name: {0: "batch", 1: "sequence"} for name in INPUTS} | {module.output: {0: "batch"}}
    with torch.inference_mode(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module,
            (ids, mask, ids * 0),
            str(path),
            input_names=list(INPUTS),
            output_names=[module.output],
            dynamic_axes=axes,
            opset_version=OPSET,
            dynamo=False,
        )
