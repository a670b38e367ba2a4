"""Every rule there is, in the order of their ids."""

from __future__ import annotations

from template_rules import (
    access_rules,
    alarm_action_rules,
    alarm_rules,
    arn_rules,
    build_image_rules,
    build_rules,
    capacity_rules,
    change_rules,
    container_rules,
    dashboard_rules,
    endpoint_config_rules,
    endpoint_rules,
    event_rules,
    lifecycle_rules,
    metric_rules,
    model_rules,
    name_rules,
    order_rules,
    policy_rules,
    property_rules,
    reference_rules,
    role_rules,
    rollout_rules,
    scaling_rules,
    section_rules,
    step_scaling_rules,
    store_rules,
    structure_rules,
    task_rules,
    workflow_rules,
)
from template_rules.rule import AnyRule, RuleFacts

MODULES = (
    structure_rules,
    section_rules,
    reference_rules,
    property_rules,
    arn_rules,
    model_rules,
    container_rules,
    endpoint_config_rules,
    endpoint_rules,
    rollout_rules,
    scaling_rules,
    step_scaling_rules,
    capacity_rules,
    order_rules,
    metric_rules,
    alarm_rules,
    alarm_action_rules,
    dashboard_rules,
    role_rules,
    policy_rules,
    access_rules,
    store_rules,
    build_rules,
    build_image_rules,
    workflow_rules,
    task_rules,
    event_rules,
    name_rules,
    change_rules,
    lifecycle_rules,
)
UNREADABLE = RuleFacts(
    id="RH001", sentence="a file can be read, and is a template", severity="error"
)
KEY_TWICE = RuleFacts(
    id="RH002", sentence="no object of a template has a key twice", severity="error"
)
ACKNOWLEDGEMENT = RuleFacts(
    id="RH003", sentence="an acknowledgement names a rule and a reason", severity="error"
)
STALE = RuleFacts(id="RH004", sentence="an acknowledgement meets a finding", severity="warning")
BROKEN = RuleFacts(id="RH005", sentence="every rule can judge every template", severity="error")
OF_THE_RUN: tuple[RuleFacts, ...] = (UNREADABLE, KEY_TWICE, ACKNOWLEDGEMENT, STALE, BROKEN)
"""What reading the files and the acknowledgements itself finds; none of these can be acknowledged.
"""


def rules() -> tuple[AnyRule, ...]:
    """Every rule with a function."""
    found = {
        each for module in MODULES for each in vars(module).values() if isinstance(each, AnyRule)
    }
    return tuple(sorted(found, key=lambda each: each.id))


def all_rules() -> tuple[RuleFacts, ...]:
    """Every rule, those of the run itself first."""
    return (*OF_THE_RUN, *rules())
