"""The text of a first model file, every choice explained."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from yaml import YAMLError

from onboarding.rules.task_rules import METRICS
from onboarding.values import Metric
from onboarding.yaml_text import load_yaml
from roundhouse.inspection.facts import SourceFacts

LONGEST_TOKENS = 512
"""Of a first file: engines of more tokens cost memory that few requests need."""
COMMENT_COLUMN = 33
PIN_COMMENTS = {
    "python_package": "exact version: the same sources, always",
    "huggingface": "full commit: the same sources, always",
    "path": "folder of the checkpoint inside the source",
    "sha256": "of these bytes: a replaced file is refused",
}
PRECISION = "int8 if faster and within the budget, else fp16 (CPU: fp32)"
METRIC_COMMENTS = {
    "cosine": "each answer against the source model's own",
    "agreement": "the source model's label; or another metric of docs/engines.md",
}
BUDGETS = {"cosine": "{mean: 0.99, worst: 0.95}"}
CALIBRATION = """\
  calibration:                   # texts like those that will be asked; they set the INT8 ranges
    dataset: {dataset}
    samples: {samples}
    method: max                  # or percentile, entropy; transformers need the widest ranges
"""


@dataclass(frozen=True, kw_only=True)
class Datasets:
    """The datasets of a first file; no calibration: INT8 is not tried."""

    validation: str
    calibration: str | None = None
    calibration_samples: int = 256


def model_file_text(
    name: str,
    pins: Mapping[str, str],
    facts: SourceFacts,
    datasets: Datasets,
    *,
    endpoint: str,
    schema: str,
) -> str:
    """Return the YAML of a model; `endpoint` is its last section, whole."""
    task = next(task for task in METRICS if task == facts.task)
    calibration = (
        ""
        if datasets.calibration is None
        else CALIBRATION.format(dataset=datasets.calibration, samples=datasets.calibration_samples)
    )
    lines = [
        f"# yaml-language-server: $schema={schema}",
        f"name: {name}",
        commented(f"task: {facts.task}", facts.because),
        "source:",
        *_source_lines(pins, facts),
        "engine:",
        commented("  precision: auto", PRECISION),
        "  optimization_profiles:",
        *_profile_lines(facts),
    ]
    accuracy = [
        commented("accuracy:", "judged on samples that calibration never saw"),
        f"  dataset: {datasets.validation}",
        *_accuracy_lines(facts.metric or METRICS[task][0]),
    ]
    serving = [
        "serving:",
        commented(
            "  dynamic_batching: {max_queue_delay_us: 100}", "how long a request waits for a batch"
        ),
    ]
    head = "\n".join(lines)
    return f"{head}\n{calibration}" + "\n".join((*accuracy, *serving)) + f"\n{endpoint}"


def _source_lines(pins: Mapping[str, str], facts: SourceFacts) -> Iterator[str]:
    for key, value in pins.items():
        yield commented(f"  {key}: {as_yaml(value)}", PIN_COMMENTS.get(key, ""))
    if facts.pooling is not None:
        pooling = facts.pooling
        yield commented(
            f"  pooling: {{mode: {pooling.mode}, normalize: {str(pooling.normalize).lower()}}}",
            "how the vectors of tokens become one",
        )
    for note in facts.notes:
        yield f"  # {one_line(note)}"


def _profile_lines(facts: SourceFacts) -> Iterator[str]:
    yield commented("    - batch: [1, 8, 32]", "min, opt, max rows of a request")
    if not facts.has_sequence:
        return
    longest = LONGEST_TOKENS if facts.longest is None else facts.longest
    most = min(longest, LONGEST_TOKENS)
    limit = (
        facts.longest_because
        if facts.longest is None
        else f"the source takes {facts.longest} ({facts.longest_because})"
    )
    sizes = f"[{min(16, most)}, {min(128, most)}, {most}]"
    yield commented(f"      sequence: {sizes}", f"min, opt, max of a row; {limit}")


def _accuracy_lines(metric: Metric) -> Iterator[str]:
    yield commented(f"  metric: {metric}", METRIC_COMMENTS.get(metric, ""))
    yield f"  budget: {BUDGETS.get(metric, '{mean: 0.99}')}"


def commented(text: str, comment: str) -> str:
    """Return a line of YAML with a comment behind it."""
    return f"{text:<{COMMENT_COLUMN - 2}}  # {one_line(comment)}" if comment else text


def one_line(text: str) -> str:
    """Return a text that ends no comment: without line breaks and what no terminal shows."""
    words = "".join(character if character.isprintable() else " " for character in text)
    return " ".join(words.split())


def as_yaml(text: str) -> str:
    """Return a value as YAML reads it back: plain where that will do, else in quotes."""
    try:
        plain = load_yaml(f"{text}  # a comment") == text
    except (YAMLError, ValueError):
        plain = False
    return text if plain else json.dumps(text, ensure_ascii=False)
