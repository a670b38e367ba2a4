"""How close the engine comes to the source model."""

from __future__ import annotations

from collections.abc import Sequence

from engine_build.card import words
from engine_build.card.facts import CardFacts
from engine_build.card.markup import Markup, element
from engine_build.card.row_chart import WIDTH, Row, points
from engine_build.card.scale import scale
from engine_build.card.table import Column, Line, badge, figure, section, table
from onboarding.manifest import AccuracyRecord

NAME = Column(head="network or engine", kind=None)


def accuracy_section(facts: CardFacts) -> Markup:
    """Means with their intervals and worst samples, as charts and as a table."""
    records = facts.manifest.accuracy
    if not records:
        return section("Accuracy", note="No accuracy was recorded.")
    metric = words.METRICS.get(records[0].metric, records[0].metric)
    samples = f"{records[-1].samples} validation samples, which calibration never saw"
    note = f"Each of {samples}, scores its {metric}; 1 is the same answer."
    charts = element(
        "div", [_means(records), *_worsts(records), *_neighbours(records)], class_="charts"
    )
    legend = (
        "Points are means, their whiskers 95 % bootstrap intervals; the dashed line is the budget."
    )
    return section(
        "Accuracy", charts, element("p", legend, class_="legend"), _table(records), note=note
    )


def _means(records: Sequence[AccuracyRecord]) -> Markup:
    rows = [
        Row(
            name=record.subject,
            value=record.mean,
            told=words.score(record.mean),
            low=None if record.mean_interval is None else record.mean_interval[0],
            high=None if record.mean_interval is None else record.mean_interval[1],
            own=record is records[-1],
        )
        for record in records
    ]
    ends = [end for row in rows for end in (row.value, row.low, row.high) if end is not None]
    budget = records[-1].budget_mean
    along = scale(min(*ends, budget), max(*ends, budget), 8, WIDTH - 8, most=1.0)
    return figure("Mean", points("Mean accuracy", rows, along, budget=budget))


def _worsts(records: Sequence[AccuracyRecord]) -> list[Markup]:
    if records[-1].metric in ("agreement", "accuracy"):
        return []
    own = records[-1]
    rows = [
        Row(name=each.subject, value=each.worst, told=words.score(each.worst), own=each is own)
        for each in records
    ]
    ends = [row.value for row in rows] + ([] if own.budget_worst is None else [own.budget_worst])
    along = scale(min(ends), max(ends), 8, WIDTH - 8, most=1.0)
    return [figure("Worst sample", points("Worst sample", rows, along, budget=own.budget_worst))]


def _neighbours(records: Sequence[AccuracyRecord]) -> list[Markup]:
    found = [
        (each, each.nearest_neighbour_agreement)
        for each in records
        if each.nearest_neighbour_agreement is not None
    ]
    if not found:
        return []
    rows = [
        Row(name=each.subject, value=share, told=words.percent(share), own=each is records[-1])
        for each, share in found
    ]
    along = scale(min(row.value for row in rows), 1.0, 8, WIDTH - 8, most=1.0)
    return [
        figure("Same nearest neighbour", points("Same nearest neighbour", rows, along, budget=None))
    ]


def _table(records: Sequence[AccuracyRecord]) -> Markup:
    heads = ("mean", "95 % interval", "worst", "same nearest neighbour", "samples")
    columns = [
        NAME,
        *(Column(head=head) for head in heads),
        Column(head="budget", kind=None),
        Column(head="verdict", kind=None),
    ]
    return table(columns, [_line(record, own=record is records[-1]) for record in records])


def _line(record: AccuracyRecord, *, own: bool) -> Line:
    neighbours = record.nearest_neighbour_agreement
    cells = (
        record.subject,
        words.score(record.mean),
        words.interval(record),
        words.score(record.worst),
        "–" if neighbours is None else words.percent(neighbours),
        str(record.samples),
        words.budget(record),
        badge(record.verdict),
    )
    return Line(cells=cells, own=own)
