"""`precision: auto` on the GPU that serves: the fastest engine within its budget, and why.

Whole builds of random networks: BERT-large at 32 x 128 ends at least
1.3 times as fast as FP16 or as FP16 with the reason; a network of MiniLM's shape, whose INT8 is
slower than its FP16 on an H100, ends in FP16 or FP8. Each takes minutes: BERT-large is quantized
here, and every precision of it is compiled once a role of its layers.
"""

from __future__ import annotations

import io
import json
import os

from engine_build.__main__ import main
from engine_build.packaging.archive import known_engine
from engine_build.steps import placement
from engine_build.store import FolderStore
from tests.gpu.networks import FEW_TOKENS, SEQUENCE, write_source
from tests.gpu.test_trtexec import pytestmark  # noqa: F401

PLACEMENT_SECONDS, BENCHMARK_SECONDS = 4 * 60.0, "5"
"""Less than a build has, so that all rows fit one lease of a GPU."""
LEAST_SPEEDUP = 1.3


def build(name, folder, batch, monkeypatch):
    """Build a random network with `precision: auto`, tuned for batches of one size.

    It is judged on rows of FEW_TOKENS, and timed on rows of SEQUENCE.
    """
    monkeypatch.setattr(placement, "LONGEST_SECONDS", PLACEMENT_SECONDS)
    monkeypatch.setenv("ROUNDHOUSE_BENCHMARK_SECONDS", BENCHMARK_SECONDS)
    profile = {"batch": [1, batch, 32], "sequence": [FEW_TOKENS, SEQUENCE, SEQUENCE]}
    engine = {"precision": "auto", "optimization_profiles": [profile]}
    root = write_source(name, folder / "root", engine=engine, tokens=FEW_TOKENS)
    out, log = io.StringIO(), folder / "log"
    argv = ["--root", str(root), "--environment", "local-gpu", "--model", name]
    argv += ["--out", str(folder / "out"), "--format", "json"]
    with log.open("w", buffering=1) as file:
        code = main(argv, os.environ, out, file)
    assert code == 0, log.read_text()[-4000:]
    result = json.loads(out.getvalue())
    entry = known_engine(FolderStore(folder / "out"), result["engine_key"])
    assert entry is not None
    return entry.manifest, result["seconds"]


def note(record_property, manifest, seconds):
    """Keep what each candidate cost, in latency and in accuracy."""
    record_property("precision", manifest.precision)
    record_property("decision", manifest.decision)
    record_property("placement_seconds", seconds["placement"])
    record_property("compile_seconds", seconds["compile"])
    for item in manifest.speedups:
        record_property(f"{item.candidate}_times_{item.baseline}", item.ratio)
    for item in manifest.benchmark:
        if item.runtime == "tensorrt":
            record_property(f"{item.precision}_{item.batch}x{item.sequence}_p50_ms", item.p50_ms)
    for item in manifest.accuracy:
        record_property(f"{item.subject} mean, worst", [item.mean, item.worst])


def test_bert_large_ends_faster_than_fp16_or_as_fp16_with_the_reason(
    tmp_path, monkeypatch, record_property
):
    manifest, seconds = build("bert-large", tmp_path, 32, monkeypatch)
    note(record_property, manifest, seconds)
    assert seconds["placement"] <= PLACEMENT_SECONDS
    if manifest.precision == "fp16":
        assert "int8" in manifest.decision and "fp8" in manifest.decision
        return
    ratios = [item.ratio for item in manifest.speedups if item.candidate == manifest.precision]
    assert manifest.precision in ("int8", "fp8") and min(ratios) >= LEAST_SPEEDUP


def test_a_network_of_minilm_s_shape_ends_in_fp16_or_fp8(tmp_path, monkeypatch, record_property):
    manifest, seconds = build("cross-encoder", tmp_path, 8, monkeypatch)
    note(record_property, manifest, seconds)
    assert manifest.precision in ("fp16", "fp8")
    assert seconds["placement"] <= PLACEMENT_SECONDS
