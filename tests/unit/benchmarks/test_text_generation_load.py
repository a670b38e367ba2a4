"""Ratios of the comparison of load tools, from rounds with known numbers."""

from __future__ import annotations

import pytest

from benchmarks.text_generation.load import SAME, Load, measures
from roundhouse.load_test.generation.requests import read_prompts


def numbers(value):
    return dict.fromkeys(SAME, value)


def test_ratios_are_of_one_round_and_their_medians_are_held_against_the_bars():
    rounds = [
        {"ours": numbers(ours), "vllm": numbers(vllm), "again": numbers(again)}
        for ours, vllm, again in (
            (10.0, 10.0, 10.0),
            (52.0, 60.0, 40.0),
            (6.0, 1.0, 3.0),
            (5, 0, 1),
        )
    ]
    found = {(item.name, str(item.bar)): item for item in measures(rounds)}
    ttft = found["TTFT, mean, ours / vllm bench serve", "at most 1.05"]
    assert (ttft.value, ttft.low, ttft.high, ttft.verdict) == (1.04, 1.0, 3.0, "held")
    assert found["TTFT, mean, ours / vllm bench serve", "at least 0.95"].verdict == "held"
    control = found["ITL, mean, vllm bench serve twice", "None"]
    assert (control.value, control.high) == (1.0, 3.0) and control.low == pytest.approx(2 / 3)


def test_both_tools_read_one_file_of_prompts(tmp_path):
    load = Load(url="", model="m", tokenizer=tmp_path, folder=tmp_path, requests=3, prompt_words=5)
    load.write_prompts()
    prompts = read_prompts(load.prompts, None).prompts
    assert [prompt.output_tokens for prompt in prompts] == [48] * 3
    assert all(len(str(prompt.content).split()) == 5 for prompt in prompts)
    assert len(set(prompts)) == 3
