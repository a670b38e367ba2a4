"""Charts: escaped elements, and scales with round ticks."""

from __future__ import annotations

import pytest

from roundhouse.reports.charts import element, scale

pytestmark = pytest.mark.unit


def test_element_escapes_text_and_attributes_but_not_markup():
    text = element("text", "<&", [element("b", "")], title='"<')
    assert text == '<text title="&#34;&lt;">&lt;&amp;<b></b></text>'
    line = element("line", x1=1.0, stroke_width=1.255, class_=None)
    assert line == '<line x1="1" stroke-width="1.25"/>'


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0, 9.3, (0, 2.5, 5, 7.5, 10)),
        (0.99, 0.99998, (0.99, 0.9925, 0.995, 0.9975, 1.0)),
        (0, 0.0004, (0, 0.0001, 0.0002, 0.0003, 0.0004)),
        (-0.2, 1.0, (-0.5, 0, 0.5, 1.0)),
    ],
)
def test_scale_has_round_ticks_around_its_values(low, high, ticks):
    axis = scale(low, high, 0, 100)
    assert axis.ticks == pytest.approx(ticks)
    assert axis.low <= low and axis.high >= high
    assert 0 <= axis(low) <= axis(high) <= 100
