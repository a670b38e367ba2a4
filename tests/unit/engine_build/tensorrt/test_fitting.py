"""Feeds and the optimization profiles that take them."""

from __future__ import annotations

import numpy as np
import pytest

from engine_build.errors import InputRefused
from engine_build.tensorrt.fitting import Range, chosen, filled, parts


def profile(batch, sequence, *names):
    low, opt, high = zip(batch, sequence, strict=True)
    return {
        name: Range(smallest=low, opt=opt, largest=high)
        for name in names or ("input_ids", "attention_mask")
    }


def feed(rows, tokens, *names):
    values = np.arange(rows * tokens, dtype=np.int64).reshape(rows, tokens) + 1
    return dict.fromkeys(names or ("input_ids", "attention_mask"), values)


SHORT = profile((1, 8, 32), (16, 64, 128))
LONG = profile((1, 1, 4), (128, 256, 512))


@pytest.mark.parametrize(
    ("rows", "tokens", "index"), [(1, 16, 0), (32, 128, 0), (1, 512, 1), (1, 128, 1), (4, 128, 0)]
)
def test_profile_is_the_one_tuned_nearest(rows, tokens, index):
    assert chosen(feed(rows, tokens), [SHORT, LONG]) == index


def test_feed_that_fits_is_left_alone():
    given = feed(3, 20)
    assert filled(given, [SHORT]) is given


def test_short_rows_are_filled_with_zeros_that_the_mask_hides():
    found = filled(feed(2, 5), [SHORT, LONG])
    assert {name: values.shape for name, values in found.items()} == {
        "input_ids": (2, 16),
        "attention_mask": (2, 16),
    }
    assert (found["attention_mask"][:, 5:] == 0).all() and found["input_ids"][1, :5].tolist() == [
        6,
        7,
        8,
        9,
        10,
    ]


def test_few_rows_are_filled_with_the_last_one():
    found = filled(feed(2, 16), [profile((4, 8, 32), (16, 64, 128))])
    assert found["input_ids"].shape == (4, 16)
    assert (found["input_ids"][2:] == found["input_ids"][1]).all()


def test_large_batch_is_cut_to_what_its_own_profile_takes():
    assert [rows for _, rows in parts(feed(70, 64), [SHORT, LONG])] == [32, 32, 6]
    assert [rows for _, rows in parts(feed(9, 300), [SHORT, LONG])] == [4, 4, 1]


def test_parts_hold_every_row_once():
    found = np.concatenate(
        [part["input_ids"][:rows] for part, rows in parts(feed(70, 64), [SHORT])]
    )
    assert (found == feed(70, 64)["input_ids"]).all()


def test_refuses_rows_that_no_profile_takes():
    with pytest.raises(
        InputRefused,
        match=r"takes input_ids 2x600, .*allowed: input_ids 1x16 to 32x128, .*; input_ids 1x128 to",
    ):
        list(parts(feed(2, 600), [SHORT, LONG]))


def test_refuses_to_fill_up_what_no_mask_hides():
    with pytest.raises(InputRefused, match="takes signal 2x5"):
        filled(feed(2, 5, "signal"), [profile((1, 8, 32), (16, 64, 128), "signal")])
