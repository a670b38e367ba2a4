"""Single faults in real assemblies are refused; the assemblies without them are not."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.synth.template_rules.faults import FAULTS
from tests.synth.template_rules.stacks import refusals

pytestmark = pytest.mark.synth

KINDS = {
    "order": 8,
    "statistics and units": 42,
    "rollout": 12,
    "scaling": 15,
    "roles": 48,
    "builds and workflow": 14,
    "stores and network": 41,
    "inference components": 19,
}


def test_faults_cover_every_kind():
    assert len({(fault.kind, fault.name) for fault in FAULTS}) == len(FAULTS)
    assert Counter(fault.kind for fault in FAULTS) == KINDS


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.kind}: {fault.name}")
def test_refuses_fault(fault):
    assert refusals(fault.assembly, fault.change)
