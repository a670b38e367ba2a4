"""Six networks in FP16, INT8 and FP8 by our writers and by NVIDIA's Model Optimizer, on a CPU.

`python -m tests.gpu.model_optimizer PYTHON [NAME …]` with the Python that
write_with_model_optimizer.py names: no GPU. Writes build/model-optimizer/NAME.xz, which the GPU
machine makes the networks of, and into docs/benchmarks/model-optimizer-cpu.json how each answers in
ONNX Runtime, beside the source, and the seconds of each tool.
"""

from __future__ import annotations

import datetime
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from engine_build.__main__ import main as build_engine
from engine_build.datasets.dataset import Array, rows_by_length
from engine_build.evaluation.accuracy import Standard, accuracy
from engine_build.log import Log
from engine_build.machine import description
from engine_build.onnx_graph.network_store import Networks
from engine_build.options import options
from engine_build.ort import OrtNetwork
from engine_build.request import build_request
from engine_build.sources.given_network import encoder_for
from engine_build.store import FolderStore, sha256_of
from engine_build.tensorrt.half_precision import write_half_precision
from onboarding.keys import chosen_network
from onboarding.model_spec import BudgetSpec
from onboarding.platform import instance_types, serving_platforms
from onboarding.values import Metric, Precision
from roundhouse.dev.gpu.machine import DEFAULT_PLATFORM
from tests.gpu.carried import Carried, pack
from tests.gpu.minilm import H100, STORE, minilm_tree
from tests.gpu.networks import FEW_TOKENS, SAMPLES, SEED, SEQUENCE, images, write_source

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "model-optimizer"
RESULTS = ROOT / "docs" / "benchmarks" / "model-optimizer-cpu.json"
WRITER = Path(__file__).with_name("write_with_model_optimizer.py")
MINILM = "minilm"
EVERY = (MINILM, "cross-encoder", "resnet-50", "vit-base", "qwen-embedder", "bert-large")
PRECISIONS: tuple[Precision, ...] = ("fp16", "int8", "fp8")
OPERATORS = ("MatMul", "Gemm")
"""What Model Optimizer quantizes; in ResNet-50 what it chooses itself."""
STEPS = re.compile(r"^(quantize|half precision) … ([0-9.]+) seconds$", re.MULTILINE)
BATCH = 32
BUDGET = BudgetSpec(mean=0.9, worst=None, neighbours=None)
"""Of no effect: a score needs one."""
IMAGES, SIZE = ("resnet-50", "vit-base"), 224
METRICS: dict[str, Metric] = {
    name: "cosine" if name in (MINILM, "qwen-embedder", "bert-large") else "relative_error"
    for name in EVERY
}


def compare_tools(name: str, python: str) -> dict[str, Any]:
    """Write a network by both tools, and return how each answers, and what it took."""
    folder, out, log = FOLDER / name, io.StringIO(), io.StringIO()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if name == MINILM:
        platform, machine = serving_platforms()[DEFAULT_PLATFORM], instance_types()[H100]
        root, model = minilm_tree("auto", platform, machine), "minilm-auto"
    else:
        tokens = FEW_TOKENS if name == "bert-large" else SEQUENCE
        root = write_source(name, folder / "root", engine={"precision": "auto"}, tokens=tokens)
        model = name
    argv = ["--root", str(root), "--environment", "local-gpu", "--model", model]
    argv += ["--out", str(folder / "out"), "--networks-only", "--format", "json"]
    assert build_engine(argv, os.environ, out, log) == 0, log.getvalue()[-4000:]
    seconds = step_seconds(log.getvalue())
    request = build_request(options(argv), Log(log))
    networks = Networks((FolderStore(folder / "out"),), folder / "found", Log(log))
    source = networks.find("float", request.network_keys["float"])
    assert source is not None
    encoder, samples = encoder_for(source, request.longest_sequence), request.validation.values
    np.savez(folder / "calibration.npz", **encoder.feed(request.calibration.values))
    shutil.copy(source.path, folder / "source.onnx")
    for precision in PRECISIONS:
        key = request.network_keys[chosen_network(precision)]
        if (network := networks.find(precision, key)) is not None:
            record = next((folder / "out" / "networks" / key).glob(f"half-{precision}-*.json"))
            full = json.loads(record.read_text())["full"]
            write_half_precision(network.path, folder / f"ours-{precision}.onnx", (), full)
        seconds[f"theirs {precision}"] = write_theirs(folder, precision, name, python)
    reference = rows_by_length(OrtNetwork(source.path).rows, encoder, samples, BATCH)
    np.savez(folder / "validation.npz", reference=reference, **encoder.feed(samples))
    standard, scores = Standard(reference=reference, metric=METRICS[name], budget=BUDGET), {}
    for path in sorted(folder.glob("*s-*.onnx")):
        rows = rows_by_length(OrtNetwork(path, fuses_qdq=False).rows, encoder, samples, BATCH)
        scores[path.stem] = score(rows, standard)
    pack_networks(name)
    return {"scores": scores, "seconds": {key: round(value, 1) for key, value in seconds.items()}}


def step_seconds(log: str) -> dict[str, float]:
    """Return the seconds of our quantization, and of the FP16 networks, which are compared too."""
    names = iter(("ours int8", "ours fp8"))
    return {
        next(names) if step == "quantize" else "ours fp16, and all three compared": float(seconds)
        for step, seconds in STEPS.findall(log)
    }


def pack_networks(name: str) -> None:
    """Write NAME.xz: the networks of both tools, and the validation samples with their answers."""
    folder = FOLDER / name
    with np.load(folder / "validation.npz") as found:
        arrays = dict(found)
    if name in IMAGES:
        assert np.array_equal(arrays.pop("pixel_values"), validation_images())
    source = folder / f"root/networks/{name}.onnx"
    if name == MINILM:
        source = folder / "source.onnx"
        arrays["source"] = np.array(sha256_of(source)[:16])
    networks = sorted(folder.glob("*s-*.onnx"))
    pack(FOLDER / f"{name}.xz", networks, arrays, source, seed=name != MINILM)


def carried(name: str) -> tuple[Carried, dict[str, Array], Standard]:
    """Return a packed file, its validation samples and answers. Raises FileNotFoundError.

    MiniLM's weights are those of the float network that `tests.gpu.minilm` left in its store.
    """
    kept = Carried(FOLDER / f"{name}.xz")
    feed = dict(kept.feed)
    if name == MINILM:
        digest = str(feed.pop("source"))
        source = next(STORE.rglob(f"{digest}-model.onnx"), STORE / f"{digest}-model.onnx")
        kept.read_weights(source)
    reference = feed.pop("reference")
    if name in IMAGES:
        feed["pixel_values"] = validation_images()
    return kept, feed, Standard(reference=reference, metric=METRICS[name], budget=BUDGET)


def validation_images() -> Array:
    """Return the images that write_source wrote last."""
    random, make = np.random.default_rng(SEED), images(SIZE)
    for count in (2, SAMPLES["calibration"]):
        make(random, count)
    return make(random, SAMPLES["validation"])["pixel_values"]


def score(rows: Array, standard: Standard) -> dict[str, float]:
    """Return mean and worst score, and for vectors the share of the same nearest neighbours."""
    record = accuracy("network", rows, standard)
    found = (record.mean, record.worst, record.nearest_neighbour_agreement)
    named = zip(("mean", "worst", "neighbours"), found, strict=True)
    return {key: round(value, 5) for key, value in named if value is not None}


def write_theirs(folder: Path, precision: str, name: str, python: str) -> float:
    """Write Model Optimizer's network, and return the seconds it says."""
    copy = folder / "copy" / "model.onnx"
    copy.parent.mkdir(exist_ok=True)
    shutil.copy(folder / "source.onnx", copy)
    operators = () if name == "resnet-50" else OPERATORS
    argv = (python, str(WRITER), str(copy), str(folder / "calibration.npz"), precision)
    argv += (str(folder / f"theirs-{precision}.onnx"), *operators)
    with (folder / f"theirs-{precision}.log").open("wb") as log:
        ended = subprocess.run(argv, stdout=subprocess.PIPE, stderr=log, check=True)
    shutil.rmtree(copy.parent)
    return float(ended.stdout.split()[-1])


def main(python: str, *names: str) -> None:
    """Compare the tools on some networks, and keep what is known of the others."""
    command = shlex.join(("python", "-m", "tests.gpu.model_optimizer", "PYTHON", *names))
    for name in names or EVERY:
        known = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
        facts = {
            "command": command,
            "machine": description(),
            "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        }
        known[name] = facts | compare_tools(name, python)
        RESULTS.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
        print(name, json.dumps(known[name]), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
