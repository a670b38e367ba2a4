"""What alarms and the clock bring about.

A target's proposals weighed against each other, its bounds, what is suspended.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, MutableSequence, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from local_cloud.application_autoscaling import activities as activity
from local_cloud.application_autoscaling.activities import Endpoints
from local_cloud.application_autoscaling.breach import Breach, policy_proposal
from local_cloud.application_autoscaling.records import (
    Activity,
    Key,
    Policy,
    ScheduledAction,
    Target,
)
from local_cloud.application_autoscaling.tracking import (
    Proposal,
    capacity_after_cooldown,
    clamp,
    winner,
)
from local_cloud.protocol.errors import AwsError

logger = logging.getLogger("roundhouse.scaling")
AlarmStates = Callable[[Sequence[str]], Mapping[str, str]]


@dataclass(frozen=True, kw_only=True)
class Actor:
    """Acts on the endpoints of the account in hand.

    `stretch` is how many real seconds one of AWS's seconds lasts.
    """

    endpoints: Endpoints
    alarm_states: AlarmStates
    stretch: float

    def act(
        self,
        target: Target,
        policies: Sequence[Policy],
        breaches: Iterable[Breach],
        kept: MutableSequence[Activity],
        now: float,
    ) -> None:
        """Scales one target as its policies ask once their alarms have called on them.

        The largest capacity wins.
        """
        current, desired = activity.capacity(self.endpoints, target.key)
        known = {policy.arn: policy for policy in policies}
        proposals = [
            proposal
            for breach in breaches
            if breach.policy_arn in known
            and (
                proposal := policy_proposal(known[breach.policy_arn], breach, current, self.stretch)
            )
        ]
        chosen = winner(
            [
                replace(
                    proposal, desired=self._capacity_limit(proposal, target, policies, current, now)
                )
                for proposal in proposals
            ],
            current,
        )
        if chosen is None:
            if proposals:
                activity.keep(
                    kept,
                    activity.activity_without_change(
                        target.key, proposals[0].cause, _reason(target, proposals, desired)
                    ),
                )
            return
        wanted = clamp(chosen.desired, target.low, target.high)
        if wanted == current or (wanted > current) != (chosen.desired > current):
            activity.keep(
                kept,
                activity.activity_without_change(
                    target.key, chosen.cause, _reason(target, [chosen], desired)
                ),
            )
        elif not activity.is_steady(self.endpoints, target.key):
            activity.keep(
                kept,
                activity.activity_without_change(
                    target.key, chosen.cause, {"Code": "TargetServicePutResourceAsUnscalable"}
                ),
            )
        elif not target.suspended[f"DynamicScaling{'Out' if wanted > current else 'In'}Suspended"]:
            self.set_capacity(target, wanted, chosen.cause, kept)

    def _capacity_limit(
        self,
        proposal: Proposal,
        target: Target,
        policies: Sequence[Policy],
        current: int,
        now: float,
    ) -> int:
        """What a proposal may ask for now.

        Nothing less while another tracking policy is not ready to scale in too.
        """
        desired = capacity_after_cooldown(proposal, current, target.last, now)
        if desired >= current:
            return desired
        policy = next(entry for entry in policies if entry.arn == proposal.policy)
        others = [
            item
            for item in policies
            if item.is_tracking and item.scales_in and item.arn != policy.arn
        ]
        if policy.is_tracking and not all(self._is_ready(other) for other in others):
            return current
        return desired if policy.scales_in else current

    def _is_ready(self, policy: Policy) -> bool:
        """Whether a tracking policy allows fewer instances: its low alarm is in ALARM."""
        return (
            "ALARM"
            in self.alarm_states([name for name in policy.alarms if "-AlarmLow-" in name]).values()
        )

    def enforce(self, target: Target, kept: MutableSequence[Activity]) -> None:
        """Brings a target within its bounds, as registering it or a scheduled action does."""
        desired = activity.capacity(self.endpoints, target.key)[1]
        wanted = clamp(desired, target.low, target.high)
        if wanted != desired:
            self.set_capacity(
                target,
                wanted,
                f"{'minimum' if wanted > desired else 'maximum'} capacity was set to {wanted}",
                kept,
            )

    def set_capacity(
        self, target: Target, wanted: int, cause: str, kept: MutableSequence[Activity]
    ) -> None:
        """Begins a change of capacity."""
        begun = activity.begin_activity(self.endpoints, target.key, wanted, cause)
        logger.info("%s: %s (%s)", target.key.resource_id, begun.description, begun.cause)
        activity.keep(kept, begun)

    def follow(self, targets: Mapping[Key, Target], kept: Iterable[Activity]) -> None:
        """Ends the activities whose change has come about or failed."""
        for entry in kept:
            if entry.is_open:
                activity.follow_activity(self.endpoints, entry, targets.get(entry.key))

    def tick(
        self, action: ScheduledAction, target: Target, kept: MutableSequence[Activity], now: float
    ) -> None:
        """Runs a scheduled action that is due; one that was due while suspended is skipped."""
        moment = datetime.fromtimestamp(now, UTC)
        if action.due is None or moment < action.due:
            return
        ran = action.due
        action.due = next_due(action, moment)
        if target.suspended["ScheduledScalingSuspended"] or (
            action.last is not None and ran > action.last
        ):
            return
        target.low = target.low if action.low is None else action.low
        target.high = target.high if action.high is None else action.high
        # A single new bound moves the other one that it would cross.
        if action.low is None:
            target.low = min(target.low, target.high)
        target.high = max(target.low, target.high)
        activity.keep(
            kept, activity.new_bounds(target, f"scheduled action name {action.name} was triggered")
        )
        try:
            self.enforce(target, kept)
        except AwsError as error:
            logger.warning("scheduled action %s: %s", action.name, error.message)


def next_due(action: ScheduledAction, after: datetime) -> datetime | None:
    """When an action is next due; None once it has ended."""
    begin = after if action.first is None else max(after, action.first)
    due = action.schedule.next_after(
        begin, action.created if action.first is None else action.first
    )
    return None if due is None or (action.last is not None and due > action.last) else due


def _reason(target: Target, proposals: Sequence[Proposal], desired: int) -> dict[str, object]:
    """Why nothing changes, with AWS's codes."""
    most = max(proposal.desired for proposal in proposals)
    if most >= desired and desired >= target.high:
        return {"Code": "AlreadyAtMaxCapacity", "MaxCapacity": target.high}
    if most <= desired and desired <= target.low:
        return {"Code": "AlreadyAtMinCapacity", "MinCapacity": target.low}
    return {"Code": "AlreadyAtDesiredCapacity", "CurrentCapacity": desired}
