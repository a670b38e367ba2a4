"""Bad plans are refused with their way out, and good ones accepted, without a network."""

from __future__ import annotations

import pytest

from onboarding.generation_resolve import generation_plans
from onboarding.tree import read_tree
from tests.unit.onboarding.text_generation.shapes import PLANS, generator_tree, llama, plan_text


@pytest.mark.parametrize("name", PLANS["bad"])
def test_refuses(name, tmp_path):
    plan = PLANS["bad"][name]
    root = generator_tree(tmp_path, plan_text(plan["change"]), plan.get("files"))
    tree = read_tree(root)
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
    tree = read_tree(root)
    assert not tree.faults, list(map(str, tree.faults))
    (plan,) = generation_plans(tree, "cloud")
    assert plan.chosen is not None and plan.chosen.holds


FAQ = {"name": "faq", "source": "adapters/faq"}


def _faults(folder, change, **config):
    """Return what `check` says of a change of the base plan, on a checkpoint of such a config."""
    headers = {"models/data/own.json": llama(4096, 32, 32, 8, 14_336, **config).document()}
    text = plan_text({"source": {"headers": "models/data/own.json"}, **change})
    return list(map(str, read_tree(generator_tree(folder, text, headers)).faults))


@pytest.mark.parametrize(
    "quantization",
    [
        {"quant_method": "auto-round", "bits": 4, "group_size": 128},
        {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8"}},
    ],
    ids=["auto-round", "modelopt-without-a-method"],
)
def test_accepts_quantized_checkpoints_that_vllm_loads(tmp_path, quantization):
    assert not _faults(tmp_path, {}, quantization_config=quantization)


@pytest.mark.parametrize(
    ("architecture", "is_refused"),
    [
        ("GPTNeoXForCausalLM", True),
        ("GPT2LMHeadModel", True),
        ("DbrxForCausalLM", True),
        ("StableLmForCausalLM", True),
        ("LlamaForCausalLM", False),
        ("Olmo2ForCausalLM", False),
    ],
)
def test_refuses_adapters_of_bases_that_take_none(tmp_path, architecture, is_refused):
    change = {"serving": {"adapters": [FAQ, {**FAQ, "name": "de"}]}}
    faults = _faults(tmp_path, change, architectures=[architecture])
    assert len(faults) == is_refused, faults
    assert all(architecture in fault and "merge each adapter" in fault for fault in faults)
