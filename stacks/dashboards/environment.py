"""The environment's dashboard: one endpoint at a time, chosen by a selector."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from onboarding import arns, names
from onboarding.deployment import VARIANT, Deployment
from onboarding.metrics import (
    AlarmGraph,
    AlarmStates,
    Graph,
    Line,
    Section,
    Selector,
    VariantMetrics,
)
from stacks.alarms.endpoint import endpoint_alarms
from stacks.dashboards import graphs
from stacks.dashboards.overview import gravity, overview
from stacks.dashboards.sections import Lines, View

SELECTED = "SELECTED_ENDPOINT"
"""What the selector replaces, wherever it stands: in dimensions, searches and alarms' ARNs.

No name has an underscore.
"""
STATES_HEIGHT = 3


def environment_sections(deployments: Sequence[Deployment]) -> list[Section]:
    """Alarms of every endpoint, then all of the one selected; none without an endpoint.

    Numbers of its own that an endpoint has (SLO, capacity, price) are drawn by its alarms' graphs,
    which follow the selector.
    """
    if not deployments:
        return []
    alarms = [endpoint_alarms(deployment) for deployment in deployments]
    view = _Selected(
        of=VariantMetrics(SELECTED, VARIANT),
        pairs=[(deployment, deployment.own) for deployment in deployments],
        kinds=[
            frozenset(alarm.kind for alarm in own if alarm.variant == VARIANT) for own in alarms
        ],
    )
    head = overview(deployments, alarms, drawn=view.is_drawn)
    return [Section(widgets=head), view.states(), *view.sections(), *view.variants()]


def selector(deployments: Sequence[Deployment]) -> Selector | None:
    """Return the list of endpoints; None without one."""
    if not deployments:
        return None
    return Selector(
        pattern=SELECTED,
        label="Endpoint",
        values=[names.endpoint_name(item.environment, item.name) for item in deployments],
        search='{AWS/SageMaker,EndpointName,VariantName} MetricName="ModelLatency"',
        dimension="EndpointName",
    )


@dataclass(frozen=True, kw_only=True)
class _Selected(View):
    """The endpoint selected, whichever it is; `kinds` are the alarms of each own variant."""

    kinds: Sequence[frozenset[str]]

    def states(self) -> Section:
        """Return alarms that every endpoint has: CloudWatch is told none that is not there."""
        common = sorted(frozenset.intersection(*self.kinds), key=gravity)
        states = AlarmStates(
            title="Its alarms that every endpoint has",
            arns=list(map(self._arn, common)),
            height=STATES_HEIGHT,
        )
        return Section(title="The endpoint selected", widgets=[states])

    def own(self, *kinds: Lines) -> list[Line]:
        """Return none: they are another endpoint's as soon as that is selected."""
        return []

    def title(self, title: str, kind: str) -> str:
        """Return a title that names the kind of endpoints."""
        return f"{title} ({kind} endpoints)"

    def alarm(self, kind: str, title: str) -> list[AlarmGraph]:
        """Return the graph of the selected endpoint's alarm; none where no endpoint has it."""
        count = sum(kind in kinds for kinds in self.kinds)
        where = "" if count == len(self.kinds) else f" ({count} of {len(self.kinds)} endpoints)"
        return [AlarmGraph(title=title + where, arn=self._arn(kind))] if count else []

    def cost(self) -> list[Graph]:
        """Return the graph of what all endpoints cost, where they are few."""
        graph = graphs.cost_of_all([deployment for deployment, _ in self.pairs])
        return [graph] if graph.curves and self.is_drawn else []

    def variants(self) -> Iterator[Section]:
        """Yield the graphs of variants side by side where any endpoint has several."""
        if any(len(deployment.variants) > 1 for deployment, _ in self.pairs):
            yield Section(title="Variants side by side", widgets=graphs.variant_graphs(SELECTED))

    def _arn(self, kind: str) -> str:
        environment = self.pairs[0][0].environment
        return arns.arn(environment, "cloudwatch", f"alarm:{SELECTED}-{kind}")
