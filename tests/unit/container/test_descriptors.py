"""File descriptors for as many connections as the server takes."""

from __future__ import annotations

import resource

import pytest

from container.server.descriptors import OTHERS, allow_connections


@pytest.fixture
def limits():
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield before
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def soft() -> int:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def test_few_descriptors_become_enough(limits):
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, limits[1]))
    allow_connections(1000)
    assert soft() == 1000 + OTHERS


def test_enough_descriptors_stay_as_they_are(limits):
    resource.setrlimit(resource.RLIMIT_NOFILE, (2000, limits[1]))
    allow_connections(1000)
    assert soft() == 2000


def test_no_more_than_the_machine_allows(limits):
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, limits[1]))
    allow_connections(limits[1])
    assert soft() == limits[1]
