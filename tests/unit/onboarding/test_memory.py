"""Models and the room they share: examples by hand, and laws for whatever sizes."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onboarding.memory import (
    ModelMemory,
    fewest_resident,
    first_fit_decreasing,
    most_resident,
    total_mib,
)

GPU_MIB = 100.0


def models_of(*sizes: float) -> tuple[ModelMemory, ...]:
    return tuple(
        ModelMemory(name="abcdefgh"[number], mib=mib, load_seconds=1.0)
        for number, mib in enumerate(sizes)
    )


def names(models) -> str:
    return "".join(model.name for model in models)


MODELS = st.lists(st.integers(1, 100), max_size=8).map(lambda sizes: models_of(*sizes))
PARTS = st.lists(st.sampled_from([0.1, 0.2, 0.3, 0.7, 33.3, 99.7]), min_size=1, max_size=6)


def test_together_are_the_smallest():
    assert names(most_resident(models_of(60, 30, 50, 20), GPU_MIB)) == "dbc"


def test_first_fit_puts_the_largest_first_into_the_first_bin_that_has_space():
    bins = first_fit_decreasing(models_of(60, 30, 50, 20, 40), GPU_MIB)
    assert [names(packed) for packed in bins] == ["ae", "cbd"]
    with pytest.raises(ValueError, match="a takes 101 MiB of 100"):
        first_fit_decreasing(models_of(101), GPU_MIB)


def test_fewest_are_as_many_of_the_largest_as_fit():
    models, totals = models_of(60, 30, 50, 20), (59.0, 60.0, 109.0, 110.0, 160.0)
    assert [fewest_resident(models, total) for total in totals] == [0, 1, 1, 2, 4]


@settings(deadline=None)
@given(models=MODELS)
def test_bins_hold_every_model_once_and_one_is_enough_exactly_when_all_fit(models):
    bins = first_fit_decreasing(models, GPU_MIB)
    assert sorted(names(itertools.chain(*bins))) == sorted(names(models))
    assert all(packed and total_mib(packed) <= GPU_MIB for packed in bins)
    assert (len(bins) <= 1) == (total_mib(models) <= GPU_MIB)


@settings(deadline=None)
@given(models=MODELS)
def test_together_are_the_most_that_any_choice_could_be(models):
    most = max(
        count
        for count in range(len(models) + 1)
        if any(total_mib(chosen) <= GPU_MIB for chosen in itertools.combinations(models, count))
    )
    assert len(most_resident(models, GPU_MIB)) == most >= fewest_resident(models, GPU_MIB)


@settings(deadline=None)
@given(sizes=PARTS, order=st.randoms(use_true_random=False))
def test_plan_is_the_same_in_whatever_order_the_models_come(sizes, order):
    models = models_of(*sizes)
    shuffled, total = order.sample(models, len(models)), total_mib(models)
    assert total_mib(shuffled) == total
    assert most_resident(shuffled, total) == most_resident(models, total)
    assert len(most_resident(models, total)) == fewest_resident(shuffled, total) == len(models)
    assert first_fit_decreasing(shuffled, GPU_MIB) == first_fit_decreasing(models, GPU_MIB)
