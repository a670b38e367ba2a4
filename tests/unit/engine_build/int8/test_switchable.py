"""One network for every mixture of float and INT8."""

from __future__ import annotations

import numpy as np
import pytest

from engine_build.errors import SourceFault
from engine_build.int8.layers import layers
from engine_build.int8.qdq import quantized
from engine_build.int8.switchable import SwitchableNetwork
from engine_build.runtimes.ort import OrtNetwork
from tests.unit.engine_build.int8.graphs import cnn, images, texts, transformer, vit
from tests.unit.engine_build.int8.test_calibration import feed, ranges

CASES = [(transformer(), texts), (cnn(), images), (vit(), images)]
IDS = ["transformer", "cnn", "vit"]


@pytest.mark.parametrize(("model", "samples"), CASES, ids=IDS)
def test_switched_layers_answer_as_the_network_written_with_them(model, samples):
    found, given = ranges(model, samples(32, seed=1)), feed(samples(16, seed=2))
    every = layers(model)
    switchable = SwitchableNetwork(model, every, found)
    for chosen in (every, every[::2], every[-1:]):
        wanted = OrtNetwork(quantized(model, chosen, found).SerializeToString()).rows(given)
        answered = switchable.rows([given], [layer.node for layer in chosen])
        # ONNX Runtime may add in another order, which turns a rounding here and there.
        assert np.abs(answered - wanted).max() < 0.02 * np.abs(wanted).max()


@pytest.mark.parametrize(("model", "samples"), CASES, ids=IDS)
def test_all_switched_off_is_the_float_network(model, samples):
    given = feed(samples(16, seed=2))
    switchable = SwitchableNetwork(model, layers(model), ranges(model, samples(32, seed=1)))
    assert np.allclose(
        switchable.rows([given], ()), OrtNetwork(model.SerializeToString()).rows(given), atol=1e-5
    )


def test_rows_of_all_feeds_come_in_order():
    model, samples = CASES[0]
    switchable = SwitchableNetwork(model, layers(model), ranges(model, samples(32, seed=1)))
    rows = samples(8, seed=2)
    apart, together = (
        switchable.rows([feed(rows[:3]), feed(rows[3:])], ()),
        switchable.rows([feed(rows)], ()),
    )
    assert np.allclose(apart, together, atol=1e-5)


def test_refuses_a_network_that_no_message_can_hold():
    model, samples = CASES[0]
    with pytest.raises(
        SourceFault, match=r"float and INT8 together has .* GB, .*; leave sensitivity_search out"
    ):
        SwitchableNetwork(model, layers(model), ranges(model, samples(8, seed=1)), largest=1000)
