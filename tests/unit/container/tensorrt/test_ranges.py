"""Which profile takes some shapes, and which suits them best."""

from __future__ import annotations

from container.tensorrt.plan import Range, allowed, nearest, taking

WIDE = dict.fromkeys(("ids", "mask"), Range(smallest=(1, 4), opt=(8, 64), largest=(16, 128)))
TIGHT = dict.fromkeys(("ids", "mask"), Range(smallest=(1, 8), opt=(1, 16), largest=(2, 32)))


def shapes(*sizes):
    return {"ids": sizes, "mask": sizes}


def test_profile_tuned_nearest_is_chosen():
    assert [
        nearest(shapes(*sizes), (WIDE, TIGHT)) for sizes in ((1, 16), (2, 32), (4, 32), (16, 128))
    ] == [1, 1, 0, 0]


def test_shapes_beyond_every_profile_have_none():
    assert taking(shapes(1, 4), (WIDE, TIGHT)) == [0]
    assert nearest(shapes(17, 4), (WIDE, TIGHT)) is None
    assert not WIDE["ids"].takes((4, 8, 1))


def test_one_input_out_of_range_is_enough():
    assert taking({"ids": (2, 32), "mask": (2, 33)}, (TIGHT,)) == []


def test_ranges_are_told_in_words():
    assert allowed((TIGHT,)) == "ids 1x8 to 2x32, mask 1x8 to 2x32"
