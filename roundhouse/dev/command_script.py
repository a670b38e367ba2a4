"""Puts the `roundhouse` command into the command's environment, with no build and no network.

Standard library only.
"""

from __future__ import annotations

from pathlib import Path

SCRIPT = """#!/bin/sh
'''exec' "{python}" "$0" "$@"
' '''
import sys

sys.excepthook = lambda kind, *of_it: kind is KeyboardInterrupt or sys.__excepthook__(kind, *of_it)
from roundhouse.__main__ import main

main()
"""
"""Until the command is loaded, Ctrl-C ends it in silence.

Both a shell script and a Python module: a shebang would break on long paths and on paths with
spaces."""


def install_command(root: Path, environment: Path) -> Path:
    """Writes bin/roundhouse, and the path file that lets it import this repository, where they are
    not as they should be.
    """
    packages = next((environment / "lib").glob("python3.*")) / "site-packages"
    script = environment / "bin" / "roundhouse"
    _write(packages / "roundhouse.pth", f"{root}\n")
    if _write(script, SCRIPT.format(python=environment / "bin" / "python")):
        script.chmod(0o755)
    return script


def _write(file: Path, text: str) -> bool:
    """Whether the file had to be written."""
    if file.is_file() and file.read_text(encoding="utf-8") == text:
        return False
    file.write_text(text, encoding="utf-8")
    return True
