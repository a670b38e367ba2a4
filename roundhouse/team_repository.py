"""The files of a team's repository, whose code is the installed package."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from roundhouse.gitops.set_up import SetUp, shipped_text, write_files

TEMPLATES = Path(__file__).parent / "team"
CDK = "aws-cdk"
YOURS = ("README.md", ".gitignore", "requirements.txt")
"""What a folder may have already, and what is kept then as it is."""


def write_team_repository(folder: Path, code: Path) -> SetUp:
    """Write the files of a repository into a folder, all of them or none.

    `code` holds the package. Raises RoundhouseError where a file is there with another text.
    """
    texts = team_files(code)
    kept = tuple(name for name in YOURS if (folder / name).exists())
    done = write_files(folder, {name: text for name, text in texts.items() if name not in kept})
    return replace(done, present=(*done.present, *kept))


def team_files(code: Path) -> dict[str, str]:
    """Return the text of every file by its path."""
    return {
        ".gitignore": shipped_text(TEMPLATES / "gitignore"),
        "README.md": shipped_text(TEMPLATES / "README.md"),
        "app.py": shipped_text(code / "app.py"),
        "cdk.json": shipped_text(code / "cdk.json"),
        **_node_files(code),
        "requirements.txt": f"{requirement(code)}\n",
        "models/.gitkeep": "",
        "endpoints/.gitkeep": "",
        "environments/local.yaml": shipped_text(TEMPLATES / "local.yaml"),
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
    lock = json.loads(shipped_text(code / "package-lock.json"))
    packages = lock["packages"]
    pins = {CDK: packages[""]["devDependencies"][CDK]}
    own = {"private": True, "devDependencies": pins}
    kept = {"": {"devDependencies": pins}, f"node_modules/{CDK}": packages[f"node_modules/{CDK}"]}
    whole = {"lockfileVersion": lock["lockfileVersion"], "requires": True, "packages": kept}
    files = {"package.json": own, "package-lock.json": whole}
    return {name: json.dumps(content, indent=2) + "\n" for name, content in files.items()}
