"""Poolings give what sentence-transformers' own Pooling gives, on rows padded on the right."""

from __future__ import annotations

from itertools import combinations
from typing import get_args

import pytest
import torch
from sentence_transformers.sentence_transformer.modules import Pooling

from engine_build.sources.pooling import POOLERS, PoolingHead
from onboarding.values import PoolingMode

LENGTHS = (7, 1, 4, 6)
WIDTH = 5
MODES = [(mode,) for mode in POOLERS] + [*combinations(("cls", "mean", "max"), 2)]


def rows(lengths=LENGTHS, longest=7):
    """Random vectors of tokens, one row all negative, and the mask."""
    random = torch.Generator().manual_seed(0)
    tokens = torch.randn((len(lengths), longest, WIDTH), generator=random)
    tokens[2] = -tokens[2].abs() - 1
    mask = (torch.arange(longest) < torch.tensor(lengths).unsqueeze(1)).long()
    return tokens, mask


@pytest.mark.parametrize("modes", MODES, ids="+".join)
def test_vectors_are_those_of_sentence_transformers(modes):
    tokens, mask = rows()
    features = {"token_embeddings": tokens, "attention_mask": mask}
    expected = Pooling(WIDTH, modes)(features)["sentence_embedding"]
    pooled = PoolingHead(modes)(tokens, mask)
    assert pooled.shape == (len(LENGTHS), len(modes) * WIDTH)
    assert torch.allclose(pooled, expected, atol=1e-6)


@pytest.mark.parametrize("mode", POOLERS)
def test_padding_changes_no_vector(mode):
    tokens, mask = rows()
    alone = PoolingHead((mode,))(tokens[1:2, :1], mask[1:2, :1])
    assert torch.allclose(PoolingHead((mode,))(tokens, mask)[1:2], alone, atol=1e-6)


def test_last_token_is_found_behind_padding_on_either_side():
    tokens, mask = rows()
    left = PoolingHead(("lasttoken",))(tokens.flip(1), mask.flip(1))
    assert torch.equal(left, tokens.flip(1)[:, -1])


@pytest.mark.parametrize("mode", POOLERS)
def test_half_precision_overflows_for_no_pooling(mode):
    tokens, mask = rows((2048, 3, 5), longest=2048)
    pooled = PoolingHead((mode,))(tokens.half(), mask)
    assert pooled.dtype == torch.float16 and torch.isfinite(pooled).all()


def test_every_mode_of_a_model_file_is_built():
    assert set(get_args(PoolingMode)) == set(POOLERS) == set(Pooling.POOLING_MODES)
