"""What `roundhouse status` says of endpoints with no cloud up, or an account that it cannot ask."""

from __future__ import annotations

import pytest

from roundhouse.cli.status import status
from roundhouse.errors import AwsError
from roundhouse.status.state import State, artifact_states, endpoint_notes
from roundhouse.status.table import state_table
from tests.unit.onboarding.text_generation.test_generation_resolve import _build, _deployment, _root
from tests.unit.roundhouse.engines import copied_tree

pytestmark = pytest.mark.unit


@pytest.fixture
def no_credentials(monkeypatch, tmp_path):
    for name in (
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "AWS_PROFILE",
        "AWS_ENDPOINT_URL",
    ):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "BOTO_CONFIG"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.mark.parametrize(
    ("profile", "says"),
    [(None, "no AWS credentials were found; set AWS_PROFILE"), ("nope", "nope")],
)
def test_refuses_an_account_without_credentials(
    no_credentials, monkeypatch, tmp_path, profile, says
):
    if profile is not None:
        monkeypatch.setenv("AWS_PROFILE", profile)
    with pytest.raises(AwsError, match=says):
        status("dev", root=copied_tree(tmp_path / "tree"))


def test_a_text_generator_has_a_row_for_each_checkpoint(tmp_path):
    root = _root(tmp_path)
    (problem,) = endpoint_notes(_deployment(root))
    assert "has no checkpoint to serve" in problem
    _build(root, "bf16")
    _build(root, "awq", accepted=False, reason="KL 0.7 is above 0.1")
    found = _deployment(root)
    states = tuple(artifact_states(found, None, None))
    state = State(environment="cloud", cloud=None, artifacts=states)
    assert [row[2:] for row in state_table(state).rows] == [
        (lock, "unknown", "cloud-chat (ml.g6e.2xlarge): unknown")
        for lock in ("serves: bf16", "not built: fp8", "refused: awq")
    ]
    assert list(endpoint_notes(found)) == ["chat in awq: KL 0.7 is above 0.1"]
