"""The card of a text generator, and its rows of `roundhouse status`."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from onboarding.generation_findings import generation_plans
from onboarding.generation_resolve import generation_deployments
from onboarding.text_generation.checkpoint_lock import SpeedRecord, SpeedRound
from onboarding.tree import read_tree
from roundhouse.reports.generation_card import checkpoint_rows, generation_card
from roundhouse.status.endpoints import generator_state
from roundhouse.status.table import generator_lines, generators_table
from tests.unit.onboarding.test_locks import KNEE
from tests.unit.onboarding.text_generation.test_generation_resolve import _build, _root


@pytest.fixture
def root(tmp_path):
    return _root(tmp_path)


def deployment_of(root):
    tree = read_tree(root)
    (deployment,) = generation_deployments(tree, "cloud")
    (plan,) = generation_plans(tree, "cloud")
    return deployment, plan


def test_rows_say_what_each_checkpoint_is(root):
    _build(root, "bf16", knee=KNEE)
    _build(root, "awq", accepted=False, reason="KL 0.7 is above 0.1")
    deployment, _ = deployment_of(root)
    states = {row.plan.scheme: row.plan.use for row in checkpoint_rows(deployment)}
    assert states == {"bf16": "serves", "fp8": "not built", "awq": "refused"}


def test_card_shows_plan_gate_memory_and_arguments(root):
    _build(root, "bf16", knee=KNEE)
    _build(root, "awq", accepted=False, reason="KL <0.7> is above 0.1")
    page = generation_card(*deployment_of(root))
    text = re.sub(r"<[^>]+>", " ", page)
    for words in ("KL &lt;0.7&gt; is above 0.1", "0.040 (0.036 to 0.044)", "weights", "14.96 GiB",
                  "SM_VLLM_MAX_MODEL_LEN", "8192", "model.safetensors", "Signed by key", "nobody",
                  "llmcompressor", "3.5", "not built"):  # fmt: skip
        assert words in text, words
    assert "://" not in page


def test_card_of_nothing_built_says_what_to_run(root):
    page = generation_card(*deployment_of(root))
    assert "roundhouse build --env cloud --model chat" in page and "Digests" not in page


def test_status_has_a_row_for_each_checkpoint(root):
    _build(root, "bf16", knee=KNEE)
    _build(root, "awq", accepted=False, reason="KL 0.7 is above 0.1")
    state = generator_state(deployment_of(root)[0])
    assert (state.problem, state.knee_concurrency) == (None, 12.0)
    assert len(generators_table([state]).rows) == 3
    assert list(generator_lines([state])) == ["chat in awq: KL 0.7 is above 0.1"]
    assert next(item for item in state.checkpoints if item.scheme == "awq").kl_per_token == 0.04


def test_status_says_why_nothing_serves(root):
    (line,) = generator_lines([generator_state(deployment_of(root)[0])])
    assert "has no checkpoint to serve" in line


def test_measured_speed_stands_in_card_and_status(root):
    speed = SpeedRecord(
        output_tokens_per_second=1200.0,
        reference_tokens_per_second=1000.0,
        rounds=(SpeedRound(output_tokens_per_second=1200.0, reference_tokens_per_second=1000.0),),
        concurrency=8,
        instance_type_or_machine="NVIDIA H200",
        engine="vllm 0.30.0",
    )
    _build(root, "fp8", speed=speed)
    deployment, plan = deployment_of(root)
    text = re.sub(r"<[^>]+>", " ", generation_card(deployment, plan))
    assert "1.20 (1.20 to 1.20): 1,200 tokens/s at 8 on NVIDIA H200, vllm 0.30.0" in text
    state = next(row for row in generator_state(deployment).checkpoints if row.scheme == "fp8")
    assert (state.output_tokens_per_second, state.speed_ratio) == (1200.0, 1.2)
    shown = Console(file=io.StringIO(), width=300)
    shown.print(generators_table([generator_state(deployment)]))
    assert "1,200 tokens/s (1.20 x source)" in shown.file.getvalue()
