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

ROOM = 100.0


def held(**sizes: float) -> tuple[ModelMemory, ...]:
    return tuple(ModelMemory(name=name, mib=mib, load_seconds=1.0) for name, mib in sizes.items())


def names(models) -> list[str]:
    return [each.name for each in models]


MODELS = st.lists(st.integers(1, 100), max_size=8).map(
    lambda sizes: tuple(
        ModelMemory(name=f"m{number:02d}", mib=float(mib), load_seconds=1.0)
        for number, mib in enumerate(sizes)
    )
)


def test_together_are_the_smallest():
    assert names(most_resident(held(a=60, b=30, c=50, d=20), ROOM)) == ["d", "b", "c"]


def test_packed_puts_the_largest_first_into_the_first_room_that_has_space():
    rooms = first_fit_decreasing(held(a=60, b=30, c=50, d=20, e=40), ROOM)
    assert [names(room) for room in rooms] == [["a", "e"], ["c", "b", "d"]]


def test_refuses_to_pack_a_model_larger_than_a_room():
    with pytest.raises(ValueError, match="a takes 101 MiB of 100"):
        first_fit_decreasing(held(a=101), ROOM)


@settings(deadline=None)
@given(models=MODELS)
def test_rooms_hold_every_model_once_and_never_too_much(models):
    rooms = first_fit_decreasing(models, ROOM)
    assert sorted(names(itertools.chain(*rooms))) == sorted(names(models))
    assert all(room and total_mib(room) <= ROOM for room in rooms)


@settings(deadline=None)
@given(models=MODELS)
def test_rooms_are_one_exactly_when_all_fit(models):
    assert (len(first_fit_decreasing(models, ROOM)) <= 1) == (total_mib(models) <= ROOM)


@settings(deadline=None)
@given(models=MODELS)
def test_rooms_are_at_most_eleven_ninths_of_the_fewest_and_one(models):
    assert (
        len(first_fit_decreasing(models, ROOM))
        <= 11 / 9 * fewest_rooms([each.mib for each in models]) + 6 / 9
    )


@settings(deadline=None)
@given(models=MODELS, more=st.floats(0, 200))
def test_larger_room_never_holds_fewer_at_once(models, more):
    assert len(most_resident(models, ROOM + more)) >= len(most_resident(models, ROOM))


@settings(deadline=None)
@given(models=MODELS)
def test_together_are_the_most_that_any_choice_could_be(models):
    most = max(
        count
        for count in range(len(models) + 1)
        if any(total_mib(chosen) <= ROOM for chosen in itertools.combinations(models, count))
    )
    assert len(most_resident(models, ROOM)) == most


@settings(deadline=None)
@given(models=MODELS, rounds=st.integers(2, 4))
def test_models_asked_in_turn_are_all_loaded_anew_unless_all_fit(models, rounds):
    loaded: list[ModelMemory] = []
    for _ in range(rounds):
        loads = [each for each in models if asked(loaded, each)]
    assert loads == ([] if total_mib(models) <= ROOM else list(models))


PARTS = st.lists(st.sampled_from([0.1, 0.2, 0.3, 0.7, 33.3, 99.7]), min_size=1, max_size=6)


@settings(deadline=None)
@given(sizes=PARTS, order=st.randoms(use_true_random=False))
def test_plan_is_the_same_in_whatever_order_the_models_come(sizes, order):
    models = [
        ModelMemory(name=f"m{number}", mib=mib, load_seconds=1.0)
        for number, mib in enumerate(sizes)
    ]
    room = math.fsum(sizes)
    shuffled = order.sample(models, len(models))
    assert total_mib(shuffled) == total_mib(models) == room
    assert most_resident(shuffled, room) == most_resident(models, room)
    assert len(most_resident(models, room)) == fewest_resident(shuffled, room) == len(models)
    assert first_fit_decreasing(shuffled, ROOM) == first_fit_decreasing(models, ROOM)


@settings(deadline=None)
@given(
    models=MODELS.filter(bool),
    instances=st.integers(1, 3),
    chance=st.randoms(use_true_random=False),
)
def test_models_asked_at_random_are_found_between_the_two_bounds(models, instances, chance):
    memories: list[list[ModelMemory]] = [[] for _ in range(instances)]
    for _ in range(200):
        memory = chance.choice(memories)
        asked(memory, chance.choice(models))
        assert total_mib(memory) <= ROOM and len(memory) <= len(most_resident(models, ROOM))
    for memory in memories:
        for model in (*models, *models):
            asked(memory, model)
        assert len(memory) >= fewest_resident(models, ROOM) >= 1


def test_whichever_are_the_largest():
    assert [
        fewest_resident(held(a=60, b=30, c=50, d=20), room)
        for room in (59.0, 60.0, 109.0, 110.0, 160.0)
    ] == [0, 1, 1, 2, 4]


def asked(loaded: list[ModelMemory], model: ModelMemory) -> bool:
    """True when calling a model loads it; `loaded` is by last use, least recently used first."""
    if model in loaded:
        loaded.remove(model)
        loaded.append(model)
        return False
    while loaded and total_mib(loaded) + model.mib > ROOM:
        loaded.pop(0)
    loaded.append(model)
    return True


def fewest_rooms(sizes: list[float]) -> int:
    """The optimum, by trying every room for every model."""
    best = len(sizes)

    def place(rest: list[float], rooms: list[float]) -> None:
        nonlocal best
        if len(rooms) >= best:
            return
        if not rest:
            best = len(rooms)
            return
        for place_number, used in enumerate(rooms):
            if used + rest[0] <= ROOM:
                place(rest[1:], [*rooms[:place_number], used + rest[0], *rooms[place_number + 1 :]])
        place(rest[1:], [*rooms, rest[0]])

    place(sorted(sizes, reverse=True), [])
    return best if sizes else 0
