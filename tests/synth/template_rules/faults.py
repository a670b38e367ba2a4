"""Single faults in real assemblies, by kind: what only a deployment, or an outage, would show."""

from __future__ import annotations

from tests.synth.template_rules import (
    alarm_faults,
    endpoint_faults,
    generation_faults,
    role_faults,
    store_faults,
)
from tests.synth.template_rules.fault import FAULTS

__all__ = [
    "FAULTS",
    "alarm_faults",
    "endpoint_faults",
    "generation_faults",
    "role_faults",
    "store_faults",
]
