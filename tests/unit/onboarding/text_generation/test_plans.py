"""Bad plans are refused with their way out, and good ones accepted, without a network."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
import yaml

from onboarding.environment_view import EnvironmentView
from onboarding.generation_checks import RULES, generation_case, placement_cases
from onboarding.generation_findings import generation_plans
from onboarding.rules import generation_placement_rules
from onboarding.rules.rule import apply_rules
from onboarding.tree import read_tree
from tests.unit.onboarding.text_generation.plans import PLANS, plan_text
from tests.unit.onboarding.text_generation.shapes import FIXTURES, generator_tree

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


def test_there_are_enough_plans():
    assert len(PLANS["bad"]) >= 25 and len(PLANS["good"]) >= 10


def test_every_rule_refuses_a_plan(tmp_path):
    refusing: set[str] = set()
    for number, plan in enumerate(PLANS["bad"].values()):
        root = generator_tree(tmp_path / str(number), plan_text(plan["change"]), plan.get("files"))
        for view in read_tree(root).views.values():
            refusing |= _rules_that_refuse(view, root)
    names = {rule.name for rule in (*RULES, *generation_placement_rules.RULES)}
    of_folders = {
        "generator_path_stays_in_the_source",
        "generator_checkpoint_is_there",
        "generator_digest_is_the_folders",
    }
    assert names - refusing == of_folders, "test_checkpoint.py has those of folders"


def _rules_that_refuse(view: EnvironmentView, root: Any) -> set[str]:
    file = view.generators["chat"]
    case = generation_case(file, root)
    found = {rule.name for rule in RULES if list(apply_rules([rule], case, file.sections))}
    for placement in placement_cases(view, root):
        found |= {
            rule.name
            for rule in generation_placement_rules.RULES
            if list(apply_rules([rule], placement, file.sections))
        }
    return found


REFUSALS = FIXTURES / "vllm_refusals"
ORACLE = json.loads((REFUSALS / "answers.json").read_text())["plans"]
REASONS = yaml.safe_load((REFUSALS / "reasons.yaml").read_text())


def test_every_plan_has_vllms_answer():
    assert ORACLE.keys() == PLANS["bad"].keys() | PLANS["good"].keys()


@pytest.mark.parametrize("name", PLANS["bad"])
def test_vllm_refuses_a_bad_plan_too_or_cannot_judge_it(name):
    answer = ORACLE[name]
    reasons = [reason for reason, names in REASONS["differs"].items() if name in names]
    if name in REASONS["agrees"]:
        assert REASONS["agrees"][name] in answer["refused"] and not reasons
    else:
        assert "refused" not in answer, answer["refused"]
        assert len(reasons) == 1, "say why vLLM does not refuse it"


@pytest.mark.parametrize("name", PLANS["good"])
def test_vllm_accepts_a_good_plan(name):
    assert ORACLE[name] == {"accepted": True}
