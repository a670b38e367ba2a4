"""The files of a team's repository, whose code is the installed package."""

from __future__ import annotations

import json
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from roundhouse.errors import RoundhouseError
from roundhouse.gitops.set_up import SetUp, write_files

TEMPLATES = Path(__file__).parent / "team"
CDK = "aws-cdk"
YOURS = ("README.md", ".gitignore", "requirements.txt")
"""What a folder may have already, and what is kept then as it is."""


def write_team_repository(folder: Path, code: Path) -> SetUp:
    """Write the files of a repository into a folder, all of them or none.

    `code` holds the package. Raises RoundhouseError where a file is there with another text.
    """
    texts = team_files(code)
    kept = [name for name in YOURS if (folder / name).exists()]
    return write_files(folder, {name: text for name, text in texts.items() if name not in kept})


def team_files(code: Path) -> dict[str, str]:
    """Return the text of every file by its path."""
    return {
        ".gitignore": _text(TEMPLATES / "gitignore"),
        "README.md": _text(TEMPLATES / "README.md"),
        "app.py": _text(code / "app.py"),
        "cdk.json": _text(code / "cdk.json"),
        **_node_files(code),
        "requirements.txt": f"{requirement(code)}\n",
        "models/.gitkeep": "",
        "endpoints/.gitkeep": "",
        "environments/local.yaml": _text(TEMPLATES / "local.yaml"),
    }


def requirement(code: Path) -> str:
    """Return the line that installs this very package: its version, or the address it came from.

    A wheel's address has its digest, which pip compares.
    """
    try:
        package = distribution("roundhouse")
    except PackageNotFoundError:
        return f"roundhouse @ {code.as_uri()}"
    origin = json.loads(package.read_text("direct_url.json") or "{}")
    if not origin:
        return f"roundhouse=={package.version}"
    digest = origin.get("archive_info", {}).get("hashes", {}).get("sha256")
    return f"roundhouse @ {origin['url']}{f'#sha256={digest}' if digest else ''}"


def _node_files(code: Path) -> dict[str, str]:
    """Return package.json and its lock with the cdk command line alone, at our version."""
    lock = json.loads(_text(code / "package-lock.json"))
    packages = lock["packages"]
    pins = {CDK: packages[""]["devDependencies"][CDK]}
    own = {"private": True, "devDependencies": pins}
    kept = {"": {"devDependencies": pins}, f"node_modules/{CDK}": packages[f"node_modules/{CDK}"]}
    whole = {"lockfileVersion": lock["lockfileVersion"], "requires": True, "packages": kept}
    files = {"package.json": own, "package-lock.json": whole}
    return {name: json.dumps(content, indent=2) + "\n" for name, content in files.items()}


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise RoundhouseError(f"{path}: is missing; install the package again.") from error
