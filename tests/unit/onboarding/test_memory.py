"""Models and the room they share: examples by hand, and laws for whatever sizes."""

from __future__ import annotations

import itertools
import math

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

pytestmark = pytest.mark.unit

GPU_MIB = 100.0


def models_of(**sizes: float) -> tuple[ModelMemory, ...]:
    return tuple(ModelMemory(name=name, mib=mib, load_seconds=1.0) for name, mib in sizes.items())


def names(models) -> list[str]:
    return [model.name for model in models]


MODELS = st.lists(st.integers(1, 100), max_size=8).map(
    lambda sizes: tuple(
        ModelMemory(name=f"m{number:02d}", mib=float(mib), load_seconds=1.0)
        for number, mib in enumerate(sizes)
    )
)


def test_together_are_the_smallest():
    assert names(most_resident(models_of(a=60, b=30, c=50, d=20), GPU_MIB)) == ["d", "b", "c"]


def test_first_fit_puts_the_largest_first_into_the_first_bin_that_has_space():
    bins = first_fit_decreasing(models_of(a=60, b=30, c=50, d=20, e=40), GPU_MIB)
    assert [names(packed) for packed in bins] == [["a", "e"], ["c", "b", "d"]]


def test_refuses_to_pack_a_model_larger_than_a_bin():
    with pytest.raises(ValueError, match="a takes 101 MiB of 100"):
        first_fit_decreasing(models_of(a=101), GPU_MIB)


@settings(deadline=None)
@given(models=MODELS)
def test_bins_hold_every_model_once_and_never_too_much(models):
    bins = first_fit_decreasing(models, GPU_MIB)
    assert sorted(names(itertools.chain(*bins))) == sorted(names(models))
    assert all(packed and total_mib(packed) <= GPU_MIB for packed in bins)


@settings(deadline=None)
@given(models=MODELS)
def test_one_bin_is_enough_exactly_when_all_fit(models):
    assert (len(first_fit_decreasing(models, GPU_MIB)) <= 1) == (total_mib(models) <= GPU_MIB)


@settings(deadline=None)
@given(models=MODELS)
def test_bins_are_at_most_eleven_ninths_of_the_fewest_and_one(models):
    assert (
        len(first_fit_decreasing(models, GPU_MIB))
        <= 11 / 9 * fewest_bins([model.mib for model in models]) + 6 / 9
    )


@settings(deadline=None)
@given(models=MODELS, more=st.floats(0, 200))
def test_larger_memory_never_holds_fewer_at_once(models, more):
    assert len(most_resident(models, GPU_MIB + more)) >= len(most_resident(models, GPU_MIB))


@settings(deadline=None)
@given(models=MODELS)
def test_together_are_the_most_that_any_choice_could_be(models):
    most = max(
        count
        for count in range(len(models) + 1)
        if any(total_mib(chosen) <= GPU_MIB for chosen in itertools.combinations(models, count))
    )
    assert len(most_resident(models, GPU_MIB)) == most


@settings(deadline=None)
@given(models=MODELS, rounds=st.integers(2, 4))
def test_models_called_in_turn_are_all_loaded_anew_unless_all_fit(models, rounds):
    loaded: list[ModelMemory] = []
    for _ in range(rounds):
        loads = [model for model in models if loads_model(loaded, model)]
    assert loads == ([] if total_mib(models) <= GPU_MIB else list(models))


PARTS = st.lists(st.sampled_from([0.1, 0.2, 0.3, 0.7, 33.3, 99.7]), min_size=1, max_size=6)


@settings(deadline=None)
@given(sizes=PARTS, order=st.randoms(use_true_random=False))
def test_plan_is_the_same_in_whatever_order_the_models_come(sizes, order):
    models = [
        ModelMemory(name=f"m{number}", mib=mib, load_seconds=1.0)
        for number, mib in enumerate(sizes)
    ]
    total = math.fsum(sizes)
    shuffled = order.sample(models, len(models))
    assert total_mib(shuffled) == total_mib(models) == total
    assert most_resident(shuffled, total) == most_resident(models, total)
    assert len(most_resident(models, total)) == fewest_resident(shuffled, total) == len(models)
    assert first_fit_decreasing(shuffled, GPU_MIB) == first_fit_decreasing(models, GPU_MIB)


@settings(deadline=None)
@given(
    models=MODELS.filter(bool),
    instances=st.integers(1, 3),
    chance=st.randoms(use_true_random=False),
)
def test_models_called_at_random_are_resident_between_the_two_bounds(models, instances, chance):
    memories: list[list[ModelMemory]] = [[] for _ in range(instances)]
    for _ in range(200):
        memory = chance.choice(memories)
        loads_model(memory, chance.choice(models))
        assert total_mib(memory) <= GPU_MIB and len(memory) <= len(most_resident(models, GPU_MIB))
    for memory in memories:
        for model in (*models, *models):
            loads_model(memory, model)
        assert len(memory) >= fewest_resident(models, GPU_MIB) >= 1


def test_whichever_are_the_largest():
    assert [
        fewest_resident(models_of(a=60, b=30, c=50, d=20), total)
        for total in (59.0, 60.0, 109.0, 110.0, 160.0)
    ] == [0, 1, 1, 2, 4]


def loads_model(loaded: list[ModelMemory], model: ModelMemory) -> bool:
    """True when calling a model loads it; `loaded` is by last use, least recently used first."""
    if model in loaded:
        loaded.remove(model)
        loaded.append(model)
        return False
    while loaded and total_mib(loaded) + model.mib > GPU_MIB:
        loaded.pop(0)
    loaded.append(model)
    return True


def fewest_bins(sizes: list[float]) -> int:
    """The optimum, by trying every room for every model."""
    best = len(sizes)

    def place(rest: list[float], bins: list[float]) -> None:
        nonlocal best
        if len(bins) >= best:
            return
        if not rest:
            best = len(bins)
            return
        for place_number, used in enumerate(bins):
            if used + rest[0] <= GPU_MIB:
                place(rest[1:], [*bins[:place_number], used + rest[0], *bins[place_number + 1 :]])
        place(rest[1:], [*bins, rest[0]])

    place(sorted(sizes, reverse=True), [])
    return best if sizes else 0
