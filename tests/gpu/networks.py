"""Networks of the shapes that teams serve, with random weights: written where they are measured.

`write_source(name, folder)` makes an onboarding root: the network, exported to ONNX as the pipeline
exports checkpoints, its samples, its model file and the environment `local-gpu`. The same seed
gives the same weights on every machine; needs torch and transformers, and no download.

`python -m tests.gpu.networks NAME FOLDER` does so in a process of its own.
"""

from __future__ import annotations

import hashlib
import io
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import onnx
import yaml
from onnx import TensorProto, numpy_helper

from engine_build.errors import InputRefused
from engine_build.log import Log
from engine_build.runner import Runner
from engine_build.tensorrt.trtexec import gpu_host
from roundhouse.dev.gpu.machine import GpuMachine, InterpreterFacts

Name = Literal["bert-large", "vit-base", "resnet-50", "cross-encoder", "qwen-embedder"]
NAMES: tuple[Name, ...] = get_args(Name)
SEED = 25
LARGE = 4096
"""Weights of more numbers are seeded."""
SAMPLES = {"calibration": 64, "validation": 100}
FEW_SAMPLES = {"calibration": 16, "validation": 100}
"""Of BERT-large, which takes minutes on the CPU; `auto` is not judged on fewer than 100."""
SEQUENCE, SHORTEST, FEW_TOKENS = 128, 16, 32
"""Tokens of a sample's row, and the fewest of them that are no padding; tokens of a shorter row."""
INSTANCE_TYPE, PLATFORM, REGION = "ml.p5.4xlarge", "triton-24.11", "us-east-2"
Arrays = dict[str, np.ndarray[Any, Any]]


class Made(NamedTuple):
    """A module in evaluation mode, which names its inputs and output, and its samples."""

    module: Any
    inputs: tuple[str, ...]
    metric: str
    samples: Callable[[np.random.Generator, int], Arrays]


def write_source(
    name: Name,
    folder: Path,
    *,
    instance_type: str | None = None,
    platform: str = PLATFORM,
    engine: Mapping[str, Any] | None = None,
    tokens: int = SEQUENCE,
    **sizes: Any,
) -> Path:
    """Write a network's onboarding root, whose one model has its name, and return it.

    `instance_type` is by default one with this machine's GPU. `engine` replaces keys of the model
    file's engine, such as {"precision": "int8"}; `tokens` are those of a sample's row, which cost
    most of the time on the CPU; `sizes` replaces sizes of transformers'
    configuration.
    """
    for part in ("networks", "models/data", "environments"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    made, random = make(name, sizes), np.random.default_rng(SEED)
    path = folder / "networks" / f"{name}.onnx"
    write_float(made, random, path)
    has_tokens = "input_ids" in made.inputs
    onnx.save(seeded(onnx.load(path)), path)
    counts = FEW_SAMPLES if name == "bert-large" else SAMPLES
    for use, count in counts.items():
        rows = made.samples(random, count)
        cut = {key: values[:, :tokens] if has_tokens else values for key, values in rows.items()}
        np.savez(folder / f"models/data/{use}.npz", **cut)
    profile = {"batch": [1, 8, 32]} | ({"sequence": [8, SEQUENCE, SEQUENCE]} if has_tokens else {})
    calibration = {"dataset": "models/data/calibration.npz", "samples": counts["calibration"]}
    model = {
        "name": name,
        "task": "tensors",
        "source": {"onnx": f"networks/{name}.onnx", "sha256": _sha256(path)},
        "engine": {
            "precision": "fp16",
            "optimization_profiles": [profile],
            "calibration": {**calibration, "method": "max"},
            **(engine or {}),
        },
        "accuracy": {
            "dataset": "models/data/validation.npz",
            "metric": made.metric,
            "budget": {"mean": 0.9},
        },
        "endpoint": {"instance_type": instance_type or own_instance_type()},
    }
    environment = {
        "name": "local-gpu",
        "account": "000000000000",
        "region": REGION,
        "platform": platform,
        "locks": "locks",
    }
    for file, content in ((f"models/{name}", model), ("environments/local-gpu", environment)):
        text = yaml.safe_dump(content, sort_keys=False)
        (folder / f"{file}.yaml").write_text(text, encoding="utf-8")
    return folder


def make(name: Name, sizes: Mapping[str, Any]) -> Made:
    """Return a module whose weights are the same in every process of this machine."""
    import torch

    torch.manual_seed(SEED)
    return MAKERS[name](sizes)


def write_float(made: Made, random: np.random.Generator, path: Path) -> None:
    """Write a module's network in FP32."""
    import torch

    from benchmarks.runtimes.networks import export

    example = made.samples(random, 2)
    export(made.module, tuple(torch.from_numpy(example[item]) for item in made.inputs), path)


def seeded(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the network with NumPy's numbers in the place of torch's, which differ by machine.

    Each large weight keeps its spread; that of a convolution the spread of each output channel.
    """
    for index, tensor in enumerate(model.graph.initializer):
        if tensor.data_type == TensorProto.FLOAT and np.prod(tensor.dims) > LARGE:
            weight = numpy_helper.to_array(tensor)
            axes = (1, 2, 3) if weight.ndim == 4 else None
            spread = np.float16(weight.std(axis=axes, keepdims=True)).astype(np.float32)
            tensor.CopyFrom(
                numpy_helper.from_array(weights(index, spread, weight.shape), tensor.name)
            )
    return model


def weights(index: int, spread: np.ndarray[Any, Any], shape: tuple[int, ...]) -> Any:
    """Return an initializer's numbers, by its place in the network."""
    random = np.random.default_rng([SEED, index])
    return random.standard_normal(shape, dtype=np.float32) * spread


def own_instance_type() -> str:
    """Return an instance type that has this machine's GPU; INSTANCE_TYPE where it has none."""
    try:
        host = gpu_host(Runner(Log(io.StringIO())))
    except InputRefused:
        return INSTANCE_TYPE
    machine = GpuMachine(python=sys.executable, host=host, interpreter=InterpreterFacts())
    found = machine.instance_type
    assert found is not None, f"no instance type has {host.gpu}"
    return found.name


def _bert_large(sizes: Mapping[str, Any]) -> Made:
    """24 layers of 1024, mean of the last hidden states: 334 million weights."""
    import transformers

    size = {
        "hidden_size": 1024,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
        "intermediate_size": 4096,
    } | dict(sizes)
    config = transformers.BertConfig(initializer_range=_spread(size), **size)
    encoder = transformers.BertModel(_eager(config), add_pooling_layer=False)
    return _embedder(encoder, "mean")


def _qwen_embedder(sizes: Mapping[str, Any]) -> Made:
    """The layers of Qwen3-Embedding-0.6B, 12 of 28 and a smaller vocabulary: the last token."""
    import transformers

    size = {
        "hidden_size": 1024,
        "num_hidden_layers": 12,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "intermediate_size": 3072,
        "vocab_size": 32_000,
    } | dict(sizes)
    config = transformers.Qwen3Config(
        initializer_range=_spread(size), use_cache=False, max_position_embeddings=512, **size
    )
    return _embedder(transformers.Qwen3Model(_eager(config)), "lasttoken")


def _cross_encoder(sizes: Mapping[str, Any]) -> Made:
    """The shape of ms-marco-MiniLM-L6: one score for a pair of texts."""
    import transformers

    from engine_build.sources.source_model import Classifier

    size = {
        "hidden_size": 384,
        "num_hidden_layers": 6,
        "num_attention_heads": 12,
        "intermediate_size": 1536,
    } | dict(sizes)
    config = transformers.BertConfig(initializer_range=_spread(size), num_labels=1, **size)
    inputs = ("input_ids", "attention_mask", "token_type_ids")
    encoder = transformers.BertForSequenceClassification(_eager(config))
    module = Classifier(encoder, inputs).eval()
    tokens = _tokens(config.vocab_size)

    def samples(random: np.random.Generator, count: int) -> Arrays:
        arrays = tokens(random, count)
        places, lengths = np.arange(SEQUENCE), arrays["attention_mask"].sum(1, keepdims=True)
        second = (places >= lengths // 3) & (places < lengths)
        return arrays | {"token_type_ids": second.astype(np.int64)}

    return Made(module, inputs, "relative_error", samples)


def _vit_base(sizes: Mapping[str, Any]) -> Made:
    import transformers

    config = transformers.ViTConfig(initializer_range=0.04, num_labels=1000, **sizes)
    return _classifier(transformers.ViTForImageClassification(_eager(config)), config.image_size)


def _resnet_50(sizes: Mapping[str, Any]) -> Made:
    import torch
    import transformers

    model = transformers.ResNetForImageClassification(
        transformers.ResNetConfig(num_labels=1000, **sizes)
    )
    # Random weights have no running statistics: without them the residuals grow to Inf.
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.momentum = None
    with torch.no_grad():
        model.train()(pixel_values=torch.randn(16, 3, 224, 224))
    return _classifier(model, 224)


MAKERS: dict[Name, Callable[[Mapping[str, Any]], Made]] = {
    "bert-large": _bert_large,
    "vit-base": _vit_base,
    "resnet-50": _resnet_50,
    "cross-encoder": _cross_encoder,
    "qwen-embedder": _qwen_embedder,
}


def _embedder(encoder: Any, pooling: str) -> Made:
    from engine_build.sources.pooling import PoolingHead
    from engine_build.sources.source_model import SentenceEmbedder

    inputs = ("input_ids", "attention_mask")
    module = SentenceEmbedder(encoder, inputs, PoolingHead((pooling,), normalize=True)).eval()
    return Made(module, inputs, "cosine", _tokens(encoder.config.vocab_size))


def _classifier(model: Any, size: int) -> Made:
    from engine_build.sources.source_model import Classifier

    return Made(
        Classifier(model, ("pixel_values",)).eval(),
        ("pixel_values",),
        "relative_error",
        images(size),
    )


def images(size: int) -> Callable[[np.random.Generator, int], Arrays]:
    """Images of waves and noise."""

    def samples(random: np.random.Generator, count: int) -> Arrays:
        noise = random.standard_normal((count, 3, size, size))
        waves = np.sin(np.arange(size) * random.uniform(0.02, 1, (count, 3, 1, 1)))
        return {"pixel_values": (waves + 0.3 * noise).astype(np.float32)}

    return samples


def _tokens(vocabulary: int) -> Callable[[np.random.Generator, int], Arrays]:
    """Rows of random tokens, padded on the right with zeros."""

    def samples(random: np.random.Generator, count: int) -> Arrays:
        lengths = random.integers(SHORTEST, SEQUENCE + 1, (count, 1))
        mask = (np.arange(SEQUENCE) < lengths).astype(np.int64)
        ids = random.integers(1, vocabulary, (count, SEQUENCE))
        return {"input_ids": ids * mask, "attention_mask": mask}

    return samples


def _eager(config: Any) -> Any:
    """The attention that the pipeline exports."""
    config._attn_implementation = "eager"
    return config


def _spread(size: Mapping[str, Any]) -> float:
    """As wide as trained weights are, so that rows get different answers."""
    return 1.2 / float(size["hidden_size"]) ** 0.5


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


if __name__ == "__main__":
    print(write_source(sys.argv[1], Path(sys.argv[2])))
