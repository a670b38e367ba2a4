"""Runs every static check and says which failed: `python -m tests.checks`.

No check stops the next.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = ROOT / ".venv" / "bin"

CHECKS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("ruff", (str(BIN / "ruff"), "check", "--no-cache", ".")),
    ("ruff format", (str(BIN / "ruff"), "format", "--check", "--no-cache", ".")),
    ("mypy --strict", (str(BIN / "mypy"),)),
    ("import contracts", (str(BIN / "lint-imports"), "--no-cache")),
    ("JSON Schema drift", (str(BIN / "python"), "-m", "onboarding.schema", "--check")),
    ("onboarding files", (str(BIN / "roundhouse"), "check")),
    ("templates", (str(BIN / "python"), "-m", "tests.shipped_templates")),
    ("locked requirements", (str(BIN / "python"), "-m", "tests.locked_requirements")),
)


def main() -> int:
    """Exit code 1 when a check failed."""
    failed = []
    for name, command in CHECKS:
        begin = time.monotonic()
        result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        verdict = "ok" if result.returncode == 0 else "FAILED"
        print(f"{name:<22}{verdict:<8}{time.monotonic() - begin:6.1f} s", flush=True)
        if result.returncode != 0:
            failed.append(name)
            print(result.stdout + result.stderr, flush=True)
    if failed:
        print(f"failed: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
