"""Programs as sessions and runners, on a stand-in for torch; tests/contract runs the real one."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest

from container.pytorch.scan import ProgramInput, ProgramSignature
from container.server.engines.engine import EngineOutOfMemory
from container.server.engines.pytorch import ProgramRunner
from container.server.engines.shaping import Part

FILE = Path("model.pt2")
SIGNATURE = ProgramSignature(
    inputs=(
        ProgramInput(name="input_ids", datatype="INT64", rank=2),
        ProgramInput(name="token_type_ids", datatype="INT64", rank=2),
    ),
    outputs=("sums", "types"),
)


class StandIn:
    """Sums each row's tokens; `fault` is raised by the second run."""

    def __init__(self, path, *, fault=None, **options):
        self.signature, self.options = SIGNATURE, options
        self.feeds, self._fault = [], fault

    def run(self, feed):
        if self._fault is not None and self.feeds:
            raise self._fault
        self.feeds.append(feed)
        return {"sums": feed["input_ids"].sum(1), "types": feed["token_type_ids"]}


def part(ids, rows):
    ids = np.array(ids)
    shapes = dict.fromkeys(("input_ids", "token_type_ids"), ids.shape)
    return Part(rows=rows, shapes=shapes, feed={"input_ids": ids, "token_type_ids": None})


def test_runner_answers_a_parts_own_rows_and_feeds_zeros_for_none():
    runner = ProgramRunner(FILE, slots=2, load=StandIn)
    outputs = runner.run(part([[1, 2], [3, 4], [3, 4]], rows=2), 1)
    assert (runner.slots, runner.outputs) == (2, ("sums", "types"))
    assert outputs["sums"].tolist() == [3, 7]
    assert outputs["types"].tolist() == [[0, 0], [0, 0]]
    assert outputs["types"].dtype == np.int64


def test_lack_of_memory_has_a_type_of_its_own():
    fault = RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")
    runner = ProgramRunner(FILE, slots=1, load=partial(StandIn, fault=fault))
    runner.run(part([[1]], rows=1), 0)
    with pytest.raises(EngineOutOfMemory, match=r"model\.pt2 does not fit the GPU memory"):
        runner.run(part([[1]], rows=1), 0)
