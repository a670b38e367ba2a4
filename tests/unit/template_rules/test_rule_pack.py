"""The rules are a cfn-lint rule pack: `cfn-lint -a template_rules`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.unit

ROOT = Path(__file__).resolve().parents[3]
GROUP = {"Type": "AWS::Logs::LogGroup", "Properties": {}}


def cfn_lint(path):
    command = (
        str(Path(sys.executable).parent / "cfn-lint"),
        "-a",
        "template_rules",
        "--",
        str(path),
    )
    # The rules of this checkout: the environment's own may be those of another one.
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )


def test_cfn_lint_runs_the_rules_of_the_folder(tmp_path):
    path = tmp_path / "a.template.json"
    path.write_text(json.dumps({"Resources": {"Group": GROUP}}), encoding="utf-8")
    refused = cfn_lint(path)
    assert refused.stdout.startswith("E9405 "), refused.stderr
    GROUP["Properties"]["RetentionInDays"] = 7
    path.write_text(json.dumps({"Resources": {"Group": GROUP}}), encoding="utf-8")
    accepted = cfn_lint(path)
    assert (accepted.returncode, accepted.stdout) == (0, "")
