"""The base template, synthesised once."""

import pytest

from tests.synth.template_rules.base import base


@pytest.fixture(scope="session")
def document(tmp_path_factory):
    return base(tmp_path_factory.mktemp("base"))
