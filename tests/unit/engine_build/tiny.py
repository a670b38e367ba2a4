"""A text model small enough for tests, and onboarding trees.

Random BERT weights, a word tokenizer, a wheel that holds both, a tree that names it; trees of ONNX
files with arrays, and of classifiers with labelled texts.
"""

from __future__ import annotations

import json
import random
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
import yaml
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from engine_build.store import sha256_of

WIDTH = 32
PIN = "tiny-embedder==1.0"
INSIDE = "tiny_embedder/model"
WHEEL = "tiny_embedder-1.0-py3-none-any.whl"
TEXT = (
    "a the red blue green slow fast old new small cat dog bird train engine signal track house sat "
    "ran saw flew under over near with on and then quickly never always today"
)
WORDS = TEXT.split()
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]


def sample_texts(count: int, *, seed: int) -> list[str]:
    """Different sentences of 3 to 12 words; no sentence of one seed occurs with another."""
    choice = random.Random(seed)
    texts: dict[str, None] = {}
    while len(texts) < count:
        texts[" ".join([*choice.choices(WORDS, k=choice.randint(3, 12)), str(seed)])] = None
    return list(texts)


def write_checkpoint(folder: Path, layers: int = 2) -> Path:
    """config.json, model.safetensors and tokenizer.json."""
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(SPECIAL) + len(WORDS),
        hidden_size=WIDTH,
        num_hidden_layers=layers,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=64,
    )
    transformers.BertModel(config).save_pretrained(folder)
    word_tokenizer().save(str(folder / "tokenizer.json"))
    write_tokenizer_config(folder)
    return folder


def write_tokenizer_config(folder: Path, padding: str = "[PAD]") -> None:
    """Names the class that reads tokenizer.json as it is."""
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": padding}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


def word_tokenizer() -> Tokenizer:
    """One token a word, with the habit of packaged tokenizers: fixed padding."""
    vocabulary = {word: index for index, word in enumerate([*SPECIAL, *WORDS])}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer.enable_padding(length=40)
    return tokenizer


def write_wheel(checkpoint: Path, folder: Path) -> Path:
    """A wheel that pip accepts, with a file outside the checkpoint's folder."""
    folder.mkdir(exist_ok=True)
    path, metadata = folder / WHEEL, "tiny_embedder-1.0.dist-info"
    tags = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    texts = {
        "tiny_embedder/__init__.py": "raise SystemExit('the package must not run')\n",
        f"{metadata}/METADATA": "Metadata-Version: 2.1\nName: tiny-embedder\nVersion: 1.0\n",
        f"{metadata}/WHEEL": tags,
        f"{metadata}/RECORD": "",
    }
    with zipfile.ZipFile(path, "w") as wheel:
        for name, text in texts.items():
            wheel.writestr(name, text)
        for file in sorted(checkpoint.iterdir()):
            wheel.write(file, f"{INSIDE}/{file.name}")
    return path


def write_tree(
    root: Path,
    *models_: dict[str, object],
    calibration: list[str] | None = None,
    validation: list[str] | None = None,
    platform: str = "triton-24.10-cpu",
) -> Path:
    """An onboarding root with one environment, `desk`, by default of a CPU."""
    for folder in ("models/data", "environments"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    texts = {
        "calibration": calibration or sample_texts(60, seed=1),
        "validation": validation or sample_texts(120, seed=2),
    }
    for name, lines in texts.items():
        (root / f"models/data/{name}.txt").write_text("\n".join(lines))
    for spec in models_ or (model(),):
        (root / f"models/{spec['name']}.yaml").write_text(yaml.safe_dump(spec))
    environment = {
        "name": "desk",
        "account": "000000000000",
        "region": "us-east-1",
        "platform": platform,
    }
    (root / "environments/desk.yaml").write_text(yaml.safe_dump(environment))
    return root


def model(name: str = "tiny", precision: str = "auto", **changes: object) -> dict[str, object]:
    """A model file; `changes` replace whole keys."""
    engine: dict[str, object] = {
        "precision": precision,
        "optimization_profiles": [{"batch": [1, 2, 4], "sequence": [4, 8, 16]}],
    }
    if precision in ("auto", "int8", "fp8"):
        dataset = "models/data/calibration.txt"
        engine["calibration"] = {"dataset": dataset, "samples": 48, "method": "max"}
    return {
        "name": name,
        "task": "text-embedding",
        "source": {"python_package": PIN, "path": INSIDE},
        "engine": engine,
        "accuracy": {
            "dataset": "models/data/validation.txt",
            "metric": "cosine",
            "budget": {"mean": 0.98, "worst": 0.9},
        },
        "endpoint": {"instance_type": "ml.c7i.large"},
        **changes,
    }


CALIBRATION, VALIDATION = "models/data/calibration", "models/data/validation"


def write_arrays(root: Path, name: str, **arrays: Any) -> None:
    """One .npz dataset."""
    path = root / f"{name}.npz"
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, **arrays)


def write_tensors_tree(
    root: Path,
    network: Path,
    datasets: Mapping[str, Mapping[str, Any]],
    *,
    precision: str = "fp32",
    metric: str = "relative_error",
    profile: Mapping[str, Sequence[int]] | None = None,
    mean: float = 0.9,
    calibrated: bool = True,
    reference: Path | None = None,
    gpu: str | None = None,
) -> Path:
    """A model `tiny` of task tensors; `datasets` are calibration and validation.

    `reference` is the file of accuracy.reference; `gpu` an instance type that serves by TensorRT.
    """
    (root / "networks").mkdir(parents=True, exist_ok=True)
    path = root / "networks/model.onnx"
    path.write_bytes(network.read_bytes())
    for name, arrays in datasets.items():
        write_arrays(root, f"models/data/{name}", **arrays)
    shapes = {"batch": [1, 2, 4]} if profile is None else profile
    profiles = [{name: list(sizes) for name, sizes in shapes.items()}]
    engine: dict[str, Any] = {"precision": precision, "optimization_profiles": profiles}
    if calibrated and precision in ("auto", "int8", "fp8"):
        count = len(next(iter(datasets["calibration"].values())))
        engine["calibration"] = {"dataset": f"{CALIBRATION}.npz", "samples": count, "method": "max"}
    accuracy: dict[str, Any] = {
        "dataset": f"{VALIDATION}.npz",
        "metric": metric,
        "budget": {"mean": mean},
    }
    if reference is not None:
        (root / "networks/float.onnx").write_bytes(reference.read_bytes())
        accuracy["reference"] = {"onnx": "networks/float.onnx", "sha256": sha256_of(reference)}
    spec = model(
        task="tensors",
        source={"onnx": "networks/model.onnx", "sha256": sha256_of(path)},
        engine=engine,
        accuracy=accuracy,
    )
    if gpu is None:
        return write_tree(root, spec)
    return write_tree(root, spec | {"endpoint": {"instance_type": gpu}}, platform="triton-26.05")


def labelled(texts: Sequence[str], labels: Sequence[str]) -> str:
    """A .tsv dataset's content."""
    return "\n".join(f"{label}\t{text}" for label, text in zip(labels, texts, strict=True))
