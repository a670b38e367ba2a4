"""The documents.

Their links lead somewhere, their commands exist, their examples pass the checks they describe.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from roundhouse.cli.app import app

pytestmark = pytest.mark.docs

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "models").rglob("*.md")]
)
LINK = re.compile(r"\[[^\]]*\]\(([^)#]+)(#[^)]*)?\)")
FORBIDDEN = re.compile(
    r"/root/|/work/|https?://(?!pypi\.nvidia\.com)[^\s)]*(?:pypi|npm|mirror)", re.IGNORECASE
)
"""NVIDIA's own index is where TensorRT's wheels are had."""
TEXTS = {".md", ".py", ".yaml", ".yml", ".txt", ".json", ".toml"}


def text(path):
    return path.read_text(encoding="utf-8")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_to_files(document):
    targets = [target for target, _ in LINK.findall(text(document)) if "://" not in target]
    assert [target for target in targets if not (document.parent / target).exists()] == []


def test_decisions_are_all_listed():
    listed = set(LINK.findall(text(ROOT / "docs/decisions/README.md")))
    files = {path.name for path in (ROOT / "docs/decisions").glob("0*.md")}
    assert {target for target, _ in listed} == files


def test_make_targets_named_in_documents_exist():
    targets = set(re.findall(r"^([a-z-]+):", text(ROOT / "Makefile"), re.MULTILINE))
    named = {
        name
        for document in DOCUMENTS
        for name in re.findall(r"(?:`|^)make ([a-z-]+)", text(document), re.MULTILINE)
    }
    assert named
    assert named - targets == set()


def test_roundhouse_verbs_named_in_documents_exist():
    verbs = {command.callback.__name__ for command in app.registered_commands}
    verbs |= {group.name for group in app.registered_groups}
    named = {
        name
        for document in DOCUMENTS
        for name in re.findall(r"roundhouse ([a-z]+)\b", text(document))
    }
    assert {"check", "build", "deploy"} <= named
    assert named - verbs == set()


def test_changelog_has_the_version():
    version = tomllib.loads(text(ROOT / "pyproject.toml"))["project"]["version"]
    assert f"## {version}" in text(ROOT / "CHANGELOG.md")


def test_no_tracked_text_names_a_machine_path_or_a_package_host():
    listing = subprocess.run(
        ("git", "ls-files", "-z"), cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    paths = [
        path
        for name in listing.split("\0")
        if (path := ROOT / name).suffix in TEXTS and path.is_file()
    ]
    guarded = [path for path in paths if path != Path(__file__)]
    found = [
        f"{path.relative_to(ROOT)}: {match.group(0)}"
        for path in guarded
        for match in FORBIDDEN.finditer(text(path))
    ]
    assert found == []


def test_shipped_files_have_no_fault():
    command = (sys.executable, "-m", "roundhouse", "check")
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")
