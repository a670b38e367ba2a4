"""Which recipe makes a scheme, and which shapes refuse it."""

from __future__ import annotations

import pytest

from engine_build.errors import InputRefused
from engine_build.text_generation.recipe import Recipe, recipe_of
from onboarding.text_generation.checkpoint import TensorHeader

pytestmark = pytest.mark.unit


def tensors(*columns):
    named = {"model.embed_tokens.weight": TensorHeader(dtype="BF16", shape=(1024, columns[0]))}
    for number, size in enumerate(columns):
        name = f"model.layers.{number}.self_attn.q_proj.weight"
        named[name] = TensorHeader(dtype="BF16", shape=(64, size))
    return named


def recipe(scheme, *columns, kv_cache="auto", has_texts=True):
    return recipe_of(scheme, kv_cache, has_texts=has_texts, tensors=tensors(*columns))


def test_fp8_is_static_with_kv_scales_only_where_there_are_texts():
    assert recipe("fp8", 100) == Recipe(scheme="fp8")
    assert recipe("fp8", 100, has_texts=False, kv_cache="fp8") == Recipe(scheme="fp8")
    static = recipe("fp8", 100, kv_cache="fp8")
    assert static.static_activations and static.kv_scales and static.is_calibrated
    assert not recipe("fp8", 100).is_calibrated and recipe("int8", 100).is_calibrated


@pytest.mark.parametrize(("columns", "group"), [((4096,), 128), ((576, 1536), 64), ((96,), 32)])
def test_groups_of_four_bits_are_the_largest_that_divide_every_layer(columns, group):
    assert recipe("awq", *columns).group_size == recipe("gptq", *columns).group_size == group


@pytest.mark.parametrize(
    ("scheme", "columns", "says"),
    [
        ("awq", 80, "awq stores groups of 32 weights, which do not divide a layer of 80 columns"),
        ("w4a8-fp8", 576, "w4a8-fp8 stores groups of 128 weights"),
        ("nvfp4", 72, "nvfp4 stores groups of 16 weights"),
        ("mxfp4", 80, "mxfp4 stores groups of 32 weights"),
        ("mxfp8", 80, "mxfp8 stores groups of 32 weights"),
    ],
)
def test_refuses_layers_that_groups_do_not_divide(scheme, columns, says):
    with pytest.raises(InputRefused) as caught:
        recipe(scheme, 256, columns)
    assert str(caught.value).startswith(says) and "choose fp8 or int8" in str(caught.value)
