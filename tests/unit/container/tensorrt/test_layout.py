"""Several tensors in one block: aligned, apart, in their own types."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from container.tensorrt.context import ALIGNMENT, layout

TYPES = st.sampled_from([np.int64, np.int32, np.float16, np.bool_])
SHAPES = st.lists(st.lists(st.integers(0, 9), max_size=3).map(tuple), min_size=1, max_size=5)


@given(SHAPES, st.data())
def test_tensors_neither_overlap_nor_lie_askew(shapes, data):
    named = {f"t{index}": shape for index, shape in enumerate(shapes)}
    found = layout(named, {name: data.draw(TYPES) for name in named})
    block = np.zeros(found.size, np.uint8)
    for number, place in enumerate(found.places.values(), start=1):
        assert place.offset % ALIGNMENT == 0
        view = place.view(block)
        assert view.shape == place.shape and not view.any()
        view[...] = number % 2 if view.dtype == bool else number
        block[place.offset : place.offset + place.size] |= 0x80
    assert found.size == max(place.offset + place.size for place in found.places.values())


def test_block_ends_with_the_last_tensor():
    assert layout({"a": (3,), "b": (2, 2)}, {"a": np.int64, "b": np.float16}).size == ALIGNMENT + 8
