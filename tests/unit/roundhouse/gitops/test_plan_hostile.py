"""Files that nobody could have meant get faults with a place, in every form; never a trace."""

from __future__ import annotations

import json
import re
from random import Random

import pytest
from typer.testing import CliRunner

from onboarding.fault import FaultsError
from onboarding.lock import LockError
from roundhouse.cli.app import app
from roundhouse.errors import RoundhouseError
from roundhouse.gitops.plan_comment import COMMENT_MARKER
from tests.unit.roundhouse.gitops.repository import ROOT, git

pytestmark = pytest.mark.unit

SEEDS = range(24)
FILES = ("models/model-001.yaml", "environments/dev.yaml", "models/model-002.lock.yaml")
NAMES = ("<script>", "@all", "a|b", "[x](y)", "`x`", "ü", "a b", "-x")
TEXTS = (
    "</details><script>", "| a | b |\n|---|", "@everyone #1", "[x](http://example.com)", "${{ x }}",
    "\u202e\u0000", "\U0001f4a3" * 50, COMMENT_MARKER, "../../../etc/passwd", "- - - -", "null",
    "~", "1e999", ".nan", "0o17", "2026-01-01", "!!python/object/apply:os.system ['x']", "&a [*a]",
    "*unknown", "{", "[", "'", '"', "\t", "%YAML 9", "---\n---", "? [a]", "a: b: c", "x" * 5000,
    "\x85",
)  # fmt: skip
PLACE = re.compile(r".+\.yaml(:\d+)?: .+")


def damage(random, text):
    """A text in which one line has another value, begin or indentation, or is gone."""
    lines, hostile = text.split("\n"), random.choice(TEXTS)
    index = random.randrange(len(lines))
    line = lines[index]
    lines[index] = random.choice(
        (f"{line.split(':', 1)[0]}: {hostile}", f"{hostile}{line}", f"{hostile}: {hostile}\n{line}",
         line.replace(":", ": !!binary", 1), f"{' ' * random.randrange(1, 9)}{line}", line[::-1])
    )  # fmt: skip
    return "\n".join(lines)


def test_plan_of_damaged_files_names_them_in_every_form(repository, monkeypatch):
    monkeypatch.chdir(ROOT)
    refused = 0
    for seed in SEEDS:
        random, form = Random(seed), ("json", "markdown", "text")[seed % 3]
        path = repository.root / random.choice(FILES)
        path.write_text(damage(random, path.read_text(encoding="utf-8")), encoding="utf-8")
        if random.random() < 0.2:
            (repository.root / "models" / f"{random.choice(NAMES)}.yaml").touch()
        words = ["plan", "--env", "dev", "--root", str(repository.root), "--format", form]
        ended = CliRunner().invoke(app, words)
        error = ended.exception
        assert error is None or isinstance(error, RoundhouseError | FaultsError | LockError), (
            seed,
            error,
        )
        refused += error is not None
        if isinstance(error, FaultsError | LockError):
            assert PLACE.match(str(error)), seed
        elif form == "json":
            faults = json.loads(ended.stdout)["faults"]
            assert all(map(PLACE.match, faults)), seed
        elif form == "markdown":
            assert ended.stdout.startswith(COMMENT_MARKER), seed
            assert "<script>" not in ended.stdout and ended.stdout.count(COMMENT_MARKER) == 1, seed
        git(repository.root, "checkout", "-q", ".")
        git(repository.root, "clean", "-qfd")
    assert refused > len(SEEDS) / 2
