"""Several tensors in one block: aligned, apart, in their own types."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from container.tensorrt.context import ALIGNMENT, block_size, layout

TYPES = st.sampled_from([np.int64, np.int32, np.float16, np.bool_])
SHAPES = st.lists(st.lists(st.integers(0, 9), max_size=3).map(tuple), min_size=1, max_size=5)


@given(SHAPES, st.data())
def test_tensors_are_aligned_and_do_not_overlap(shapes, data):
    named = {f"t{index}": shape for index, shape in enumerate(shapes)}
    extents = layout(named, {name: data.draw(TYPES) for name in named})
    block = np.zeros(block_size(extents), np.uint8)
    for number, extent in enumerate(extents.values(), start=1):
        assert extent.offset % ALIGNMENT == 0
        view = extent.view(block)
        assert view.shape == extent.shape and not view.any()
        view[...] = number % 2 if view.dtype == bool else number
        block[extent.offset : extent.end] |= 0x80


def test_block_ends_with_the_last_tensor():
    extents = layout({"a": (3,), "b": (2, 2)}, {"a": np.int64, "b": np.float16})
    assert block_size(extents) == ALIGNMENT + 8
