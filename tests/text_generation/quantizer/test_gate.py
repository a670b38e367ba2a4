"""The gate on models whose distance is known: the source itself, noise, and one layer of noise."""

from __future__ import annotations

import io
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from engine_build.log import Log
from engine_build.text_generation.gate import (
    candidate_scores,
    divergence,
    evaluation_of,
    judge,
    kv_scores,
    long_prompts,
    source_answers,
)
from engine_build.text_generation.language_model import LanguageModel, next_tokens
from engine_build.workload import WorkFolder
from onboarding.tree import read_tree
from tests.text_generation.quantizer.trees import llama_tree


@pytest.fixture(scope="module")
def log():
    return Log(io.StringIO())


@pytest.fixture(scope="module")
def evaluation(tmp_path_factory):
    root = llama_tree(tmp_path_factory.mktemp("tree"), layers=8)
    tree = read_tree(root)
    return root, evaluation_of(tree.views["cloud"].generators["chat"].spec, root)


@pytest.fixture(scope="module")
def references(evaluation, tmp_path_factory, log):
    root, chosen = evaluation
    work = WorkFolder(tmp_path_factory.mktemp("references"))
    source = SimpleNamespace(folder=root / "models/data/tiny", trusts_code=False)
    return source_answers(source, chosen, SimpleNamespace(work=work, log=log))


@pytest.fixture
def candidate(evaluation):
    return LanguageModel(evaluation[0] / "models/data/tiny")


def add_noise(model, layer, size):
    torch.manual_seed(3)
    with torch.no_grad():
        for parameter in model.model.model.layers[layer].mlp.parameters():
            parameter += size * parameter.std() * torch.randn_like(parameter)


def test_source_lies_nowhere_from_itself(candidate, references, log):
    found = divergence(candidate_scores(candidate, references, log))
    assert found.kl_per_token.high < 1e-5 and found.top1.low > 0.99
    assert math.isclose(found.perplexity_ratio.value, 1.0, abs_tol=1e-3)


def test_scores_are_those_of_whole_logits(evaluation, candidate, references, log):
    source = LanguageModel(evaluation[0] / "models/data/tiny")
    add_noise(candidate, 2, 0.3)
    tokens = references.samples[0]
    score = candidate_scores(candidate, references, log)[0]
    ids = torch.tensor([tokens])
    with torch.inference_mode():
        reference = source.model(ids).logits[0, :-1].float().log_softmax(-1).numpy()
        given = candidate.model(ids).logits[0, :-1].float().log_softmax(-1).numpy()
    kl = float((np.exp(reference) * (reference - given)).sum())
    assert score.kl == pytest.approx(kl, rel=0.01) and score.tokens == len(tokens) - 1
    expected = -given[np.arange(len(tokens) - 1), next_tokens(tokens)].sum()
    assert score.nll == pytest.approx(float(expected), rel=1e-4)


def test_more_noise_lies_farther(evaluation, references, log):
    found = []
    for size in (0.05, 0.2, 0.8):
        model = LanguageModel(evaluation[0] / "models/data/tiny")
        add_noise(model, 2, size)
        found.append(divergence(candidate_scores(model, references, log)).kl_per_token)
    assert found[0].high < found[1].low and found[1].high < found[2].low


def test_fp8_kv_cache_costs_more_with_a_bad_scale(candidate, references, log):
    prompts = long_prompts(references.samples, 8, 200)
    assert {len(prompt) for prompt in prompts} == {200} and len(set(map(tuple, prompts))) == 8
    good = divergence(kv_scores(candidate, prompts, {}, log)).kl_per_token
    bad = dict.fromkeys(range(8), (1000.0, 1000.0))
    assert (
        good.value > 0
        and good.high < divergence(kv_scores(candidate, prompts, bad, log)).kl_per_token.low
    )


def test_gate_of_the_source_holds(candidate, references, evaluation, log):
    gate = judge(candidate, references, evaluation[1], "1" * 64, {}, log)
    assert (gate.samples, gate.dataset) == (16, "roundhouse:texts/evaluation.txt")
    assert gate.task is None and gate.kv is not None
