"""Ratios of the comparison of load tools, from rounds with known numbers."""

from __future__ import annotations

import pytest

from benchmarks.text_generation.load import SAME, measures


def numbers(value, names):
    return dict.fromkeys(names, value)


def test_ratios_are_of_one_round_and_their_medians_are_held_against_the_bars():
    theirs = [name for name, _, _ in SAME.values()]
    rounds = [
        {
            "ours": numbers(ours, SAME),
            "vllm": numbers(vllm, theirs),
            "first": numbers(10.0, SAME),
            "second": numbers(9.0, SAME),
        }
        for ours, vllm in ((10.0, 10.0), (52.0, 50.0), (3.0, 1.0), (5.0, 0.0))
    ]
    found = {(item.name, str(item.bar)): item for item in measures(rounds)}
    ttft = found["TTFT, mean, ours / vllm bench serve", "at most 1.05"]
    assert (ttft.value, ttft.low, ttft.high, ttft.verdict) == (1.04, 1.0, 3.0, "held")
    assert found["TTFT, mean, ours / vllm bench serve", "at least 0.95"].verdict == "held"
    assert found["ITL, mean, ours / ours", "None"].value == pytest.approx(0.9)
