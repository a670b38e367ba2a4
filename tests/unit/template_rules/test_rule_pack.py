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


def test_cfn_lint_runs_the_rules_of_the_folder(tmp_path):
    for name, properties in (("refused", {}), ("accepted", {"RetentionInDays": 7})):
        group = {"Type": "AWS::Logs::LogGroup", "Properties": properties}
        text = json.dumps({"Resources": {"Group": group}})
        (tmp_path / f"{name}.template.json").write_text(text, encoding="utf-8")
    command = (str(Path(sys.executable).parent / "cfn-lint"), "-a", "template_rules", "--")
    # The rules of this checkout: the environment's own may be those of another one.
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    linted = subprocess.run(
        (*command, *map(str, tmp_path.iterdir())),
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert linted.stdout.startswith("E9405 "), linted.stderr
    assert linted.stdout.count(".template.json") == 1 and "refused.template" in linted.stdout
