"""Sizes are those of the servers' own code."""

from __future__ import annotations

import pytest

from onboarding.manifest import ProfileRecord
from roundhouse.lengths.options import PadAs
from roundhouse.lengths.padding import default_padding, padding

pytestmark = pytest.mark.unit
PROFILES = (ProfileRecord(batch=(1, 8, 32), sequence=(8, 64, 128)),)


@pytest.mark.parametrize(
    ("pad_as", "expected"),
    [(PadAs.longest, (3, 21)), (PadAs.triton, (3, 32)), (PadAs.python, (4, 32))],
)
def test_servers_pad_to_their_own_sizes(pad_as, expected):
    assert padding(pad_as, PROFILES, 32).sizes(3, 21) == (expected,)


def test_triton_pads_to_profiles_and_powers_of_two():
    profiles = (
        ProfileRecord(batch=(1, 8, 32), sequence=(8, 24, 24)),
        ProfileRecord(batch=(1, 8, 32), sequence=(25, 100, 100)),
    )
    assert padding(PadAs.triton, profiles, 32).steps == (8, 16, 24, 25, 32, 64, 100)


def test_environments_pad_as_their_server_does():
    assert default_padding("triton", is_gpu=False) is PadAs.longest
    assert default_padding("triton", is_gpu=True) is PadAs.triton
    assert default_padding("python", is_gpu=True) is PadAs.python
