"""The head of the environment's dashboard: what it shows, and the alarms of all endpoints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from onboarding.deployment import Deployment
from stacks.alarms.alarm import Alarm, alarm_arn
from stacks.dashboards.lines import COLORS
from stacks.dashboards.tables import promises
from stacks.dashboards.widget import Widget, alarm_states, text

MOST_LISTED = 500
"""Alarms of all endpoints, in widgets of a hundred."""
GRAVEST = (
    "no-instances", "server-errors", "latency", "no-answers", "client-errors", "gpu-memory", "host-memory", "disk",
    "oldest-request", "saturation", "drift", "cache-hits", "loading-wait", "early-5xx", "early-4xx", "ceiling",
)  # fmt: skip
"""Kinds of alarms, the gravest first."""
LEAST_HEIGHT, MOST_HEIGHT, ROWS_A_UNIT = 4, 10, 2
Found = list[tuple[Deployment, Alarm]]


def overview(
    deployments: Sequence[Deployment], alarms: Sequence[Sequence[Alarm]], *, drawn: bool
) -> list[Widget]:
    """`alarms` are those of each endpoint. `drawn`: lines of every endpoint are in the graphs."""
    found = [(each, alarm) for each, own in zip(deployments, alarms, strict=True) for alarm in own]
    listed = listed_alarms(found)
    arns = [alarm_arn(each, alarm.kind, alarm.variant) for each, alarm in listed]
    left_out = sorted(
        {alarm.kind for _, alarm in found} - {alarm.kind for _, alarm in listed}, key=GRAVEST.index
    )
    rows = sum(len(each.variants) for each in deployments) if drawn else 0
    height = min(MOST_HEIGHT, LEAST_HEIGHT + rows // ROWS_A_UNIT)
    states = alarm_states("In alarm, of all endpoints", arns, height=height, states=["ALARM"])
    return [text(_told(deployments, drawn, left_out), width=12, height=height), *states]


def listed_alarms(found: Found) -> Found:
    """Every alarm of the gravest kinds, whole kinds while there is room; of the very gravest as
    many as there is room for.
    """
    counts, kept, room = Counter(alarm.kind for _, alarm in found), set[str](), MOST_LISTED
    for kind in sorted(counts, key=GRAVEST.index):
        if counts[kind] > room:
            break
        kept.add(kind)
        room -= counts[kind]
    if not kept:
        kept.add(min(counts, key=GRAVEST.index))
    return [pair for pair in found if pair[1].kind in kept][:MOST_LISTED]


def _told(deployments: Sequence[Deployment], drawn: bool, left_out: Sequence[str]) -> str:
    """Says numbers of endpoints only where they are drawn: otherwise a change of one endpoint
    changes its own stack alone.
    """
    environment = deployments[0].environment.name
    lines = [
        f"# {environment}: {len(deployments)} endpoint{'s' if len(deployments) > 1 else ''}",
        f"Choose one above. {COLORS}",
    ]
    if not drawn:
        lines.append(
            "So many endpoints' lines would flatten every graph, so none are drawn: graphs *against* something follow the "
            "selector, and an endpoint with `dashboard: true` has lines of its own. "
            f"`roundhouse status --env {environment}` tells every endpoint's SLO, capacity, target and cost."
        )
    if left_out:
        lines.append(
            f"Not listed beside: alarms of the kinds {', '.join(left_out)}; the selected endpoint's are below."
        )
    return "\n\n".join([*lines, *([promises(deployments)] if drawn else [])])
