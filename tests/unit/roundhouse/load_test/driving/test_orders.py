"""Frames between the command and its load processes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from roundhouse.load_test.driving.orders import Ended, Frames, Ready, framed


@given(st.lists(st.integers(1, 40), min_size=1, max_size=30))
def test_frames_come_whole_however_the_bytes_are_cut(cuts):
    values = [Ready(), Ended(number=3, dropped=2), Ready()]
    data, frames, found = b"".join(map(framed, values)), Frames(), []
    for cut in [*cuts, len(data)]:
        found += frames.fed(data[:cut])
        data = data[cut:]
    assert found == values


def test_half_a_frame_is_kept():
    frames = Frames()
    assert list(frames.fed(framed(Ready())[:-1])) == []
    assert list(frames.fed(framed(Ready())[-1:])) == [Ready()]
