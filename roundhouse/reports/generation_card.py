"""The card of a text generator: its plan, its checkpoints and their gate, memory, arguments.

A pure function of the files and the lock: the same give the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from engine_build.card.render import DASH, Column, macro, milliseconds, render, size, table
from onboarding.text_generation.checkpoint_lock import CheckpointEntry, GateRecord, Interval
from onboarding.text_generation.generation_deployment import GenerationDeployment
from onboarding.text_generation.plan import CheckpointPlan, TextGenerationPlan
from onboarding.text_generation.platforms import gpus
from roundhouse.money import usd

TEMPLATES = Path(__file__).parent / "templates"
code = macro("code")


class CheckpointRow(NamedTuple):
    """One checkpoint that the files ask for; `entry` None: it is not built."""

    plan: CheckpointPlan
    entry: CheckpointEntry | None

    @property
    def gate(self) -> GateRecord | None:
        """How it was judged; None where it is the source's own, or not built."""
        return None if self.entry is None else self.entry.gate


def checkpoint_rows(deployment: GenerationDeployment) -> Iterator[CheckpointRow]:
    """Yield every checkpoint that the files ask for, in the order of the schemes."""
    entries = {entry.checkpoint_key: entry for entry in deployment.built}
    for plan in deployment.checkpoints:
        yield CheckpointRow(plan, entries.get(plan.checkpoint_key))


def generation_card(deployment: GenerationDeployment, plan: TextGenerationPlan) -> str:
    """Return the page as HTML that loads nothing."""
    item, entry = deployment.candidate, deployment.entry
    rows = list(checkpoint_rows(deployment))
    values = {
        "deployment": deployment,
        "item": item,
        "entry": entry,
        "plan": plan,
        "spec": deployment.spec,
        "checkpoints": table(CHECKPOINTS, rows, lambda row: row.plan.use == "serves"),
        "reasons": [row for row in rows if row.entry is not None and row.entry.reason],
        "memory": table(MEMORY, _memory(deployment)),
        "others": table(OTHERS, plan.others),
        "arguments": [
            (name, code(value)) for name, value in sorted(deployment.container_environment.items())
        ],
        "files": table(FILES, () if entry is None else entry.files),
    }
    filters = {"ms": milliseconds, "number": _number, "size": size, "usd": usd}
    return render("generation_card.html.j2", values, folder=TEMPLATES, filters=filters)


def _memory(deployment: GenerationDeployment) -> Iterator[tuple[str, str]]:
    item, gpu = deployment.candidate, gpus().get(deployment.candidate.gpu or "")
    yield "weights", _gib(item.weights_gib)
    if item.adapters_gib is not None:
        count = len(deployment.spec.serving.adapters)
        yield "LoRA adapters", f"{_gib(item.adapters_gib)} for {count} at once"
    yield "KV cache", f"{_gib(item.kv_gib)}, {_number(item.kv_tokens)} tokens ({item.kv_cache})"
    yield "overhead of the engine", _gib(item.overhead_gib)
    memory = None if gpu is None else gpu.memory_gib
    share = deployment.spec.serving.gpu_memory_utilization
    yield "that CUDA reports", f"{_gib(memory)}, of which the engine takes {share:.0%}"


def _gib(value: float | None) -> str:
    return DASH if value is None else f"{value:.2f} GiB"


def _number(value: float | None, digits: int = 0) -> str:
    return "unknown" if value is None else f"{value:,.{digits}f}"


def _interval(value: Interval | None, digits: int = 3) -> str:
    if value is None:
        return DASH
    return f"{value.value:.{digits}f} ({value.low:.{digits}f} to {value.high:.{digits}f})"


def _kv(row: CheckpointRow) -> str:
    gate = None if row.gate is None else row.gate.kv
    return _interval(None if gate is None else gate.kl_per_token)


def _speed(row: CheckpointRow) -> str:
    speed = None if row.entry is None else row.entry.speed
    if speed is None:
        return DASH
    times = "source too large" if speed.ratio is None else _interval(speed.ratio, 2)
    return (
        f"{times}: {speed.output_tokens_per_second:,.0f} tokens/s at {speed.concurrency} on "
        f"{speed.instance_type_or_machine}, {speed.engine}"
    )


def _task(row: CheckpointRow) -> str:
    return DASH if row.gate is None or row.gate.task is None else _interval(row.gate.task.drop)


CHECKPOINTS: tuple[Column, ...] = (
    ("scheme", "", lambda row: row.plan.scheme),
    ("key", "", lambda row: code(row.plan.checkpoint_key)),
    ("state", "", lambda row: row.plan.use),
    ("size", "number", lambda row: DASH if row.entry is None else size(row.entry.weight_bytes)),
    ("KL a token, nats", "number", lambda row: _interval(row.gate and row.gate.kl_per_token)),
    ("top-1", "number", lambda row: _interval(row.gate and row.gate.top1)),
    ("perplexity ratio", "number", lambda row: _interval(row.gate and row.gate.perplexity_ratio)),
    ("task score lost", "number", _task),
    ("FP8 KV: KL", "number", _kv),
    ("speed, times the source's", "number", _speed),
)
MEMORY: tuple[Column, ...] = (
    ("of one GPU", "", lambda row: row[0]),
    ("", "number", lambda row: row[1]),
)
OTHERS: tuple[Column, ...] = (
    ("instance type", "", lambda item: item.instance_type),
    ("scheme", "", lambda item: item.scheme),
    ("because", "", lambda item: item.reason or DASH),
)
FILES: tuple[Column, ...] = (
    ("file", "", lambda file: code(file.path)),
    ("size", "number", lambda file: size(file.size_bytes)),
    ("sha256", "", lambda file: code(file.sha256)),
)
