"""Names in the source use the field's words.

The glossary of docs/architecture.md defines them, and this test refuses the private words that
the project once had.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.docs

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = (
    "app.py",
    "onboarding",
    "engine_build",
    "container",
    "stacks",
    "template_rules",
    "roundhouse",
    "local_cloud",
    "benchmarks",
    "tests",
)
WORDS = frozenset(
    """
    road roads shop wish wishes passport passports twin twins porter porters door doors shelf
    shelves lane lanes weather room rooms house desk arena ground contender contenders crew
    conductor conducting caretaker answerer deaf unobserved untruncated workbench walk walker
    law laws sentences wording telling told tell said asked judging judged judgement judgements
    """.split()  # noqa: SIM905
)
"""Metaphors and private words, refused as a part of any name."""
PARTICIPLES = frozenset(
    """
    added answered applied asked begun bound broken brought built called changed checked chosen
    closed composed counted divided done dotted drawn driven dropped edited ended fetched
    filled fitted followed formed found framed given gone grouped held joined judged kept laid
    left listed loaded made marked measured merged met moved named opened ordered overridden
    packed paired parsed placed played prepared printed published quoted reached read_back
    recorded refused rendered replaced resolved rounded run_over said scaled sealed seen sent
    served shared shown sorted_out split_up started stated stopped stored taken taught tested
    told turned typed unpacked used verified warmed watched wrapped written
    """.split()  # noqa: SIM905
)
"""Past participles, refused as the whole name of a function.

An act is an imperative (`read`), a result is a noun (`records`).
"""


def _files(package: str) -> list[Path]:
    path = ROOT / package
    return [path] if path.is_file() else sorted(path.rglob("*.py"))


def _parts(name: str) -> set[str]:
    """The words of a snake_case or CamelCase name, in lower case."""
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)}


def _names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Every name that a module defines: classes, functions, parameters, variables, attributes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id if isinstance(node, ast.Name) else node.attr


def _faults(source: str) -> Iterator[tuple[int, str]]:
    tree = ast.parse(source)
    for line, name in _names(tree):
        if _parts(name) & WORDS:
            yield line, f"'{name}' holds a private word"
    for node in ast.walk(tree):
        is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if is_function and node.name.strip("_") in PARTICIPLES:
            yield node.lineno, f"function '{node.name}' is called by a past participle"
        target = getattr(node, "target", None)
        is_loop = isinstance(node, ast.For | ast.AsyncFor | ast.comprehension)
        if is_loop and isinstance(target, ast.Name) and target.id == "each":
            yield target.lineno, "a loop variable is called 'each', not by its noun"


def _package_faults(package: str) -> list[str]:
    faults = []
    for path in _files(package):
        place = path.relative_to(ROOT).as_posix()
        if any(_parts(part) & WORDS for part in place.removesuffix(".py").split("/")):
            faults.append(f"{place}: the path holds a private word")
        source = path.read_text(encoding="utf-8")
        faults += [f"{place}:{line}: {fault}" for line, fault in sorted(_faults(source))]
    return faults


@pytest.mark.parametrize("package", PACKAGES)
def test_names_are_of_the_fields_words(package):
    faults = _package_faults(package)
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        ("class Shop: pass", "'Shop' holds a private word"),
        ("def build(passport): pass", "'passport' holds a private word"),
        ("free_rooms = 1", "'free_rooms' holds a private word"),
        ("self.toldLines = 1", "'toldLines' holds a private word"),
        ("def _made(): pass", "function '_made' is called by a past participle"),
        ("[each for each in ()]", "a loop variable is called 'each', not by its noun"),
        ("for each in (): pass", "a loop variable is called 'each', not by its noun"),
    ],
)
def test_refuses_a_private_word(source, fault):
    assert [text for _, text in _faults(source)] == [fault]


@pytest.mark.parametrize(
    "source", ["roundhouse = broadcast = workshops = 1", "def model_is_made(): pass", "x = road"]
)
def test_accepts_words_that_only_hold_such_letters(source):
    assert list(_faults(source)) == []


def test_glossary_has_one_meaning_for_each_term():
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    glossary = page.partition("\n## Glossary\n")[2]
    terms = re.findall(r"^\| \*\*([^*]+)\*\* \|", glossary, flags=re.MULTILINE)
    assert len(terms) >= 8
    assert sorted(terms, key=str.lower) == sorted(set(terms), key=str.lower)
