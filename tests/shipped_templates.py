"""Synthesises the shipped environments with validation by the CDK, and checks their templates.

`python -m tests.shipped_templates` runs `npx cdk synth` as a user does, then cfn-lint, the template
rules and the assembly checks, as `roundhouse deploy` does.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from template_rules import check

ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    """Exit code 1, with every finding, when a template is refused."""
    environment = {name: text for name, text in os.environ.items() if name != "CDK_VALIDATION"}
    with TemporaryDirectory() as folder:
        command = ("npx", "cdk", "synth", "--quiet", "--output", folder)
        synthesis = subprocess.run(command, cwd=ROOT, env=environment, check=False)
        if synthesis.returncode != 0:
            return 1
        stages = sorted(Path(folder).glob("assembly-*"))
        found = [item for stage in stages for item in check(stage)]
    errors = [str(item) for item in found if item.severity == "error"]
    print("\n".join(errors))
    return 1 if errors or not stages else 0


if __name__ == "__main__":
    sys.exit(main())
