"""The house as it stands.

File sizes, import circles, rooms that open without their neighbours' dependencies.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import grimp
import pytest

pytestmark = pytest.mark.docs

ROOT = Path(__file__).resolve().parents[2]
ROOMS = (
    "onboarding",
    "stacks",
    "template_rules",
    "engine_build",
    "container",
    "roundhouse",
    "local_cloud",
    "benchmarks",
)
LONGEST_FILE = 350


def tracked_files() -> list[Path]:
    """Every file git knows or would add."""
    listing = subprocess.run(
        ("git", "ls-files", "--cached", "--others", "--exclude-standard"),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [path for line in listing.stdout.splitlines() if (path := ROOT / line).is_file()]


def test_source_file_lengths_are_at_most_350_lines():
    counted = {
        path: len(path.read_text(encoding="utf-8").splitlines())
        for path in tracked_files()
        if path.suffix == ".py"
    }
    assert counted
    assert {
        str(path.relative_to(ROOT)): lines
        for path, lines in counted.items()
        if lines > LONGEST_FILE
    } == {}


def circles(children: dict[str, set[str]]) -> list[list[str]]:
    """Every import circle that a depth-first walk meets."""
    found: list[list[str]] = []
    done: set[str] = set()

    def walk(module: str, path: list[str]) -> None:
        if module in path:
            found.append([*path[path.index(module) :], module])
            return
        if module in done:
            return
        for child in sorted(children.get(module, ())):
            walk(child, [*path, module])
        done.add(module)

    for module in sorted(children):
        walk(module, [])
    return found


def test_import_graph_has_no_circle():
    graph = grimp.build_graph(*ROOMS, cache_dir=None)
    children = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    assert circles(children) == []


def test_circles_finds_a_circle():
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}}) == [["a", "b", "c", "a"]]


@pytest.mark.parametrize(
    ("environment", "room", "absent"),
    [
        (".venvs/server", "container", ("boto3", "aws_cdk", "torch", "transformers")),
        (".venvs/builder", "engine_build", ("aws_cdk", "uvicorn")),
        (".venv", "stacks", ("torch", "onnx", "onnxruntime", "uvicorn")),
        (".venv", "roundhouse", ("torch", "onnx", "onnxruntime", "uvicorn")),
        (".venv", "onboarding", ("torch", "onnx", "onnxruntime", "uvicorn")),
    ],
)
def test_room_opens_without_its_neighbours_dependencies(environment, room, absent):
    script = (
        "import importlib, importlib.util, pkgutil, sys\n"
        f"assert not [n for n in {absent!r} if importlib.util.find_spec(n)], 'a neighbour is "
        "installed'\n"
        f"room = importlib.import_module({room!r})\n"
        "def skipped(name): return name.endswith('__main__') or '.triton.' in name or "
        "'.local_cloud.' in name\n"
        "names = [m.name for m in pkgutil.walk_packages(room.__path__, room.__name__ + '.') if "
        "not skipped(m.name)]\n"
        "[importlib.import_module(name) for name in names]\n"
        "print(len(names))\n"
    )
    python = ROOT / environment / "bin" / "python"
    result = subprocess.run(
        (str(python), "-c", script), cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    assert int(result.stdout) > 0
