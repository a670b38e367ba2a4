"""A CloudWatch dashboard of endpoints: sections of graphs, alarms and text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from aws_cdk import Stack
from aws_cdk import aws_cloudwatch as cw
from constructs import Construct

from onboarding.metrics import AlarmGraph, AlarmStates, Graph, Section, Selector, Text
from roundhouse_cdk.watched_metrics import cdk_metric, seconds

COLUMNS, THIRD, GRAPH_HEIGHT = 24, 8, 6
PERIOD = 60
MOST_ALARMS, MOST_VALUES = 100, 500
"""That one widget of alarms lists, and that a selector does."""


@dataclass(frozen=True, kw_only=True)
class EndpointDashboardProps:
    """`name` is its own in the account; with a `selector` it shows one endpoint at a time."""

    name: str
    sections: Sequence[Section]
    selector: Selector | None = None


class EndpointDashboard(Construct):
    """Deploys `dashboard`, whose widgets stand from left to right in rows of 24 columns."""

    def __init__(
        self, scope: Construct, construct_id: str, *, props: EndpointDashboardProps
    ) -> None:
        super().__init__(scope, construct_id)
        self._alarm = cache(self._find_alarm)
        self._count = 0
        widgets = [widget for section in props.sections for widget in self._widgets(section)]
        self.dashboard = cw.Dashboard(
            self,
            "Dashboard",
            dashboard_name=props.name,
            start="-PT3H",
            # A longer period would sum more than the minute that the lines are about.
            period_override=cw.PeriodOverride.INHERIT,
            variables=None if props.selector is None else [_variable(props.selector)],
            widgets=[widgets],
        )

    def _widgets(self, section: Section) -> Iterator[cw.IWidget]:
        """Yield a section's: three in a row, and two in the last rows where three leave a gap."""
        count = len(section.widgets)
        if section.title and count:
            yield cw.TextWidget(markdown=f"## {section.title}", width=COLUMNS, height=1)
        thirds = count - min((0, 4, 2)[count % 3], count)
        wide = COLUMNS // min(2, max(1, count - thirds))
        for place, widget in enumerate(section.widgets):
            width = THIRD if place < thirds else wide
            if isinstance(widget, Text):
                yield cw.TextWidget(
                    markdown=widget.markdown, width=widget.width, height=widget.height
                )
            elif isinstance(widget, AlarmStates):
                yield from self._states(widget, width if section.title else COLUMNS // 2)
            elif isinstance(widget, AlarmGraph):
                yield cw.AlarmWidget(
                    title=widget.title,
                    alarm=self._alarm(widget.arn),
                    region=Stack.of(self).region,
                    left_y_axis=cw.YAxisProps(min=0),
                    width=width,
                    height=GRAPH_HEIGHT,
                )
            else:
                yield self._graph(widget, width)

    def _graph(self, graph: Graph, width: int) -> cw.GraphWidget:
        return cw.GraphWidget(
            title=graph.title,
            region=Stack.of(self).region,
            view=cw.GraphWidgetView.TIME_SERIES,
            stacked=graph.stacked,
            period=seconds(PERIOD),
            left=[cdk_metric(watched, label) for label, watched in graph.curves.items()],
            left_y_axis=cw.YAxisProps(min=0, max=graph.most, label=graph.unit, show_units=False),
            left_annotations=[
                cw.HorizontalAnnotation(label=line.label, value=line.value, color=line.color)
                for line in graph.lines
            ],
            width=width,
            height=GRAPH_HEIGHT,
        )

    def _states(self, states: AlarmStates, width: int) -> Iterator[cw.IWidget]:
        """Yield a widget for every hundred alarms."""
        for first in range(0, len(states.arns), MOST_ALARMS):
            yield cw.AlarmStatusWidget(
                title=states.title,
                alarms=[self._alarm(arn) for arn in states.arns[first : first + MOST_ALARMS]],
                states=[cw.AlarmState.ALARM] if states.in_alarm else None,
                sort_by=cw.AlarmStatusWidgetSortBy.STATE_UPDATED_TIMESTAMP,
                width=width,
                height=states.height,
            )

    def _find_alarm(self, arn: str) -> cw.IAlarm:
        self._count += 1
        return cw.Alarm.from_alarm_arn(self, f"Alarm{self._count}", arn)


def _variable(selector: Selector) -> cw.DashboardVariable:
    values = cw.Values.from_values(
        *(cw.VariableValue(label=value, value=value) for value in selector.values[:MOST_VALUES])
    )
    if len(selector.values) > MOST_VALUES:
        values = cw.Values.from_search(selector.search, selector.dimension)
    return cw.DashboardVariable(
        id=selector.label.lower(),
        type=cw.VariableType.PATTERN,
        value=selector.pattern,
        input_type=cw.VariableInputType.SELECT,
        label=selector.label,
        visible=True,
        default_value=cw.DefaultValue.value(selector.values[0]),
        values=values,
    )
