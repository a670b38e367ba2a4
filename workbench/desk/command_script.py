"""Puts the `roundhouse` command into the workbench's environment, with no build and no network. Standard library only."""

from __future__ import annotations

from pathlib import Path

SCRIPT = """#!/bin/sh
'''exec' "{python}" "$0" "$@"
' '''
import sys

sys.excepthook = lambda kind, *of_it: kind is KeyboardInterrupt or sys.__excepthook__(kind, *of_it)
from workbench.__main__ import main

main()
"""
"""Until the command is loaded, Ctrl-C ends it in silence.

Both a shell script and a Python module: a shebang would break on long paths and on paths with spaces."""


def install_command(root: Path, environment: Path) -> Path:
    """Writes bin/roundhouse, and the path file that lets it import this repository."""
    packages = next((environment / "lib").glob("python3.*")) / "site-packages"
    (packages / "roundhouse.pth").write_text(f"{root}\n", encoding="utf-8")
    script = environment / "bin" / "roundhouse"
    script.write_text(SCRIPT.format(python=environment / "bin" / "python"), encoding="utf-8")
    script.chmod(0o755)
    return script
