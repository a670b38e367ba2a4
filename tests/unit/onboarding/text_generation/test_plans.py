"""Bad plans are refused with their way out, and good ones accepted, without a network."""

from __future__ import annotations

import time

import pytest

from onboarding.generation_resolve import generation_plans
from onboarding.tree import read_tree
from tests.unit.onboarding.text_generation.plans import PLANS, plan_text
from tests.unit.onboarding.text_generation.shapes import generator_tree

SECONDS = 2.0


@pytest.mark.parametrize("name", PLANS["bad"])
def test_refuses(name, tmp_path):
    plan = PLANS["bad"][name]
    root = generator_tree(tmp_path, plan_text(plan["change"]), plan.get("files"))
    began = time.process_time()
    tree = read_tree(root)
    assert time.process_time() - began < SECONDS
    file = plan.get("file", "models/chat.yaml")
    text = [fault for fault in tree.faults if fault.file == file]
    lines = (root / file).read_text().splitlines()
    place = next(
        number for number, line in enumerate(lines, 1) if line.strip().startswith(plan["at"])
    )
    messages = list(map(str, text))
    assert text and min(fault.line for fault in text if fault.line) == place, messages
    assert len(messages) == len(plan["says"]), messages
    for words in plan["says"]:
        assert any(_holds(message, words) for message in messages), messages
    assert all(fault.way_out and fault.line for fault in text)


def _holds(message: str, words: list[object]) -> bool:
    place = 0
    for word in map(str, words):
        place = message.find(word, place) + 1
        if place == 0:
            return False
    return True


@pytest.mark.parametrize("name", PLANS["good"])
def test_accepts(name, tmp_path):
    root = generator_tree(tmp_path, plan_text(PLANS["good"][name]))
    began = time.process_time()
    tree = read_tree(root)
    assert time.process_time() - began < SECONDS
    assert not tree.faults, list(map(str, tree.faults))
    (plan,) = generation_plans(tree, "cloud")
    assert plan.chosen is not None and plan.chosen.holds
