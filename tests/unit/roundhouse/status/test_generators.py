"""Rows of text generators in `roundhouse status`."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from onboarding.generation_resolve import generation_deployments
from onboarding.text_generation.checkpoint_lock import SpeedRecord, SpeedRound
from onboarding.tree import read_tree
from roundhouse.card import show_card
from roundhouse.errors import RoundhouseError
from roundhouse.paths import Paths
from roundhouse.status.endpoints import generator_state
from roundhouse.status.table import generator_lines, generators_table
from tests.unit.onboarding.test_locks import KNEE
from tests.unit.onboarding.text_generation.test_generation_resolve import _build, _root


@pytest.fixture
def root(tmp_path):
    return _root(tmp_path)


def deployment_of(root):
    (deployment,) = generation_deployments(read_tree(root), "cloud")
    return deployment


def test_status_has_a_row_for_each_checkpoint(root):
    _build(root, "bf16", knee=KNEE)
    _build(root, "awq", accepted=False, reason="KL 0.7 is above 0.1")
    state = generator_state(deployment_of(root))
    states = {item.scheme: item.use for item in state.checkpoints}
    assert states == {"bf16": "serves", "fp8": "not built", "awq": "refused"}
    assert (state.problem, state.knee_concurrency) == (None, 12.0)
    assert len(generators_table([state]).rows) == 3
    assert list(generator_lines([state])) == ["chat in awq: KL 0.7 is above 0.1"]
    assert next(item for item in state.checkpoints if item.scheme == "awq").kl_per_token == 0.04


def test_status_says_why_nothing_serves(root):
    (line,) = generator_lines([generator_state(deployment_of(root))])
    assert "has no checkpoint to serve" in line


def test_measured_speed_stands_in_status(root):
    speed = SpeedRecord(
        output_tokens_per_second=1200.0,
        reference_tokens_per_second=1000.0,
        rounds=(SpeedRound(output_tokens_per_second=1200.0, reference_tokens_per_second=1000.0),),
        concurrency=8,
        instance_type_or_machine="NVIDIA H200",
        engine="vllm 0.30.0",
    )
    _build(root, "fp8", speed=speed)
    deployment = deployment_of(root)
    state = next(row for row in generator_state(deployment).checkpoints if row.scheme == "fp8")
    assert (state.output_tokens_per_second, state.speed_ratio) == (1200.0, 1.2)
    shown = Console(file=io.StringIO(), width=300)
    shown.print(generators_table([generator_state(deployment)]))
    assert "1,200 tokens/s (1.20 x source)" in shown.file.getvalue()


def test_refuses_a_card_of_a_text_generator(root):
    paths = Paths(code=root, tree=root, build=root / "build")
    with pytest.raises(RoundhouseError, match="chat: is a text generator, and engines alone have"):
        show_card(paths, None, "cloud", "chat")
