"""A plan against git needs no network, and opens no socket."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.unit.roundhouse.gitops.repository import ROOT

pytestmark = pytest.mark.unit

ISOLATED = ("unshare", "--net", "--map-root-user")
SOCKETS_REFUSED = """
import sys

def refuse(event, arguments):
    if event.startswith("socket."):
        raise SystemExit(event)

sys.addaudithook(refuse)
"""
PLAN = """
sys.argv = ["roundhouse", "plan", "--env", "dev", "--root", {root!r}, "--format", "json"]
from roundhouse.__main__ import main
main()
"""


def run_isolated(statement):
    program = SOCKETS_REFUSED + statement
    command = (*ISOLATED, sys.executable, "-c", program)
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_plan_runs_without_a_network_and_opens_no_socket(repository):
    repository.edit("models/model-001.yaml", {"endpoint": {"scaling": {"max": 6}}})
    result = run_isolated(PLAN.format(root=str(repository.root)))
    assert (result.returncode, result.stderr) == (0, "")
    (environment,) = json.loads(result.stdout)["environments"]
    assert [item["name"] for item in environment["endpoints"]] == ["model-001"]
