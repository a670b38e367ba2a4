"""Model configurations kept as golden files.

`python -m tests.unit.engine_build.golden_configurations` rewrites them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from engine_build.packaging.repository import configurations
from engine_build.packaging.served import Served
from onboarding.manifest import ProfileRecord, TensorRecord
from onboarding.serving_spec import (
    ClientTensorSpec,
    DynamicBatchingSpec,
    PostprocessingSpec,
    PreprocessingSpec,
    ProcessedTensorSpec,
    ServingSpec,
)

GOLDEN = Path(__file__).with_name("golden")
TOKENS = tuple(
    TensorRecord(name=name, datatype="INT64", shape=(-1, -1))
    for name in ("input_ids", "attention_mask")
)
EMBEDDING = (TensorRecord(name="sentence_embedding", datatype="FP32", shape=(-1, 384)),)
LOGITS = (TensorRecord(name="logits", datatype="FP32", shape=(-1, 3)),)
SIGNALS = (
    TensorRecord(name="signal", datatype="FP16", shape=(-1, 3, -1)),
    TensorRecord(name="gain", datatype="INT32", shape=(-1,)),
)
FOUND = (
    TensorRecord(name="boxes", datatype="FP32", shape=(-1, 100, 4)),
    TensorRecord(name="count", datatype="UINT8", shape=(-1,)),
)
PIXELS = (TensorRecord(name="pixels", datatype="FP32", shape=(-1, 3, 224, 224)),)
TUNED = ServingSpec(
    dynamic_batching=DynamicBatchingSpec(preferred_batch_sizes=(4, 8), max_queue_delay_us=100),
    instances_per_gpu=2,
    response_cache=True,
)
SHORT = ProfileRecord(batch=(1, 1, 4), sequence=(8, 32, 64))
LONG = ProfileRecord(batch=(1, 8, 32), sequence=(16, 128, 256))
IMAGES = ProfileRecord(batch=(1, 8, 16))


def served_model(**changes: Any) -> Served:
    """A text embedder with one profile; `changes` replace fields."""
    fields: dict[str, Any] = {
        "model": "embedder",
        "task": "text-embedding",
        "inputs": TOKENS,
        "outputs": EMBEDDING,
        "profiles": (LONG,),
        "max_batch_size": 32,
        "serving": ServingSpec(),
    }
    return Served(**(fields | changes))


CLASSIFIER = {"model": "classifier", "task": "text-classification", "outputs": LOGITS}
LABELLED = CLASSIFIER | {"activation": "softmax"}
RANKER = {
    "model": "ranker",
    "task": "text-ranking",
    "outputs": (TensorRecord(name="logits", datatype="FP32", shape=(-1, 1)),),
    "activation": "sigmoid",
}
TAGGER = {
    "model": "tagger",
    "task": "token-classification",
    "outputs": (TensorRecord(name="logits", datatype="FP32", shape=(-1, -1, 5)),),
    "activation": "softmax",
}
VISION = {
    "model": "vision",
    "task": "tensors",
    "inputs": PIXELS,
    "outputs": LOGITS,
    "profiles": (IMAGES,),
    "max_batch_size": 16,
}
DETECTOR = VISION | {"model": "detector", "inputs": SIGNALS, "outputs": FOUND}
HTML = ClientTensorSpec(name="html", datatype="BYTES", dims=(1,))
LABEL = ProcessedTensorSpec(name="label", datatype="BYTES", dims=(1,))
BOTH = ServingSpec(
    preprocessing=PreprocessingSpec(file="a.py", sha256="a" * 64, inputs=(HTML,)),
    postprocessing=PostprocessingSpec(file="b.py", sha256="b" * 64, outputs=(LABEL,)),
)
CLEANED = ServingSpec(
    preprocessing=PreprocessingSpec(file="a.py", sha256="a" * 64), instances_per_gpu=2
)
CASES = {
    "cpu-embedding": (served_model(), True),
    "cpu-embedding-tuned": (served_model(serving=TUNED), True),
    "cpu-classification": (served_model(**CLASSIFIER), True),
    "cpu-tensors": (served_model(**DETECTOR), True),
    "gpu-embedding": (served_model(), False),
    "gpu-embedding-tuned": (served_model(serving=TUNED, profiles=(LONG, SHORT)), False),
    "gpu-classification-cold": (
        served_model(**CLASSIFIER, serving=ServingSpec(warm_up=False)),
        False,
    ),
    "cpu-tokens": (served_model(**TAGGER), True),
    "gpu-labels": (served_model(**LABELLED), False),
    "gpu-ranking": (served_model(**RANKER), False),
    "gpu-tokens": (served_model(**TAGGER), False),
    "gpu-vision": (served_model(**VISION), False),
    "cpu-cleaned": (served_model(serving=CLEANED), True),
    "gpu-cleaned": (served_model(serving=CLEANED), False),
    "gpu-labels-processed": (served_model(**LABELLED, serving=BOTH), False),
    "gpu-tensors-processed": (served_model(**DETECTOR, serving=BOTH), False),
    "gpu-tensors-of-unknown-size": (served_model(**DETECTOR), False),
}


def text(case: str) -> str:
    """All configurations of a case in one text, each under its path."""
    engine, is_cpu = CASES[case]
    texts = configurations(engine, is_cpu=is_cpu)
    return "\n".join(f"# {name}\n{text}" for name, text in texts.items())


def golden(case: str) -> Path:
    """The file of a case."""
    return GOLDEN / f"{case}.pbtxt"


if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    for case in CASES:
        golden(case).write_text(text(case))
