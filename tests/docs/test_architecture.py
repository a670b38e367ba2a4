"""The structure of the code: lengths of files, circles between files and folders, dependencies."""

from __future__ import annotations

import subprocess
from pathlib import Path

import grimp
import pytest

pytestmark = pytest.mark.docs

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = (
    "onboarding",
    "stacks",
    "template_rules",
    "engine_build",
    "container",
    "local_cloud",
    "roundhouse",
    "benchmarks",
)
LONGEST_FILE, LONGEST_TEST_FILE = 500, 600


def python_files() -> list[Path]:
    """Every Python file that git knows or would add."""
    listing = subprocess.run(
        ("git", "ls-files", "--cached", "--others", "--exclude-standard", "*.py"),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [path for line in listing.stdout.splitlines() if (path := ROOT / line).is_file()]


def longest(path: Path) -> int:
    """The number of lines that a file may have."""
    return LONGEST_TEST_FILE if path.is_relative_to(ROOT / "tests") else LONGEST_FILE


def test_files_have_at_most_500_lines_and_files_of_tests_600():
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in python_files()}
    assert lengths
    assert {
        str(path.relative_to(ROOT)): lines
        for path, lines in lengths.items()
        if lines > longest(path)
    } == {}


def circles(imports: dict[str, set[str]]) -> list[list[str]]:
    """Circles that a depth-first walk of an import graph meets."""
    result: list[list[str]] = []
    done: set[str] = set()

    def visit(module: str, path: list[str]) -> None:
        if module in path:
            result.append([*path[path.index(module) :], module])
            return
        if module in done:
            return
        for imported in sorted(imports.get(module, ())):
            visit(imported, [*path, module])
        done.add(module)

    for module in sorted(imports):
        visit(module, [])
    return result


def folder_imports(imports: dict[str, set[str]], package: str) -> dict[str, set[str]]:
    """Imports between the direct children of a package; a folder stands for all it holds."""
    depth = package.count(".") + 2
    graph: dict[str, set[str]] = {}
    for module, imported in imports.items():
        if not module.startswith(f"{package}."):
            continue
        child = ".".join(module.split(".")[:depth])
        others = {
            ".".join(name.split(".")[:depth]) for name in imported if name.startswith(f"{package}.")
        }
        graph.setdefault(child, set()).update(others - {child})
    return graph


@pytest.fixture(scope="module")
def imports() -> dict[str, set[str]]:
    graph = grimp.build_graph(*PACKAGES, cache_dir=None)
    return {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}


def test_files_import_in_no_circle(imports):
    assert circles(imports) == []


def test_folders_of_a_package_import_in_no_circle(imports):
    packages = {module.rpartition(".")[0] for module in imports if "." in module}
    found = {package: circles(folder_imports(imports, package)) for package in sorted(packages)}
    assert {package: circle for package, circle in found.items() if circle} == {}


def test_circles_finds_a_circle():
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}}) == [["a", "b", "c", "a"]]


def test_folder_imports_find_a_circle_that_no_two_files_make():
    graph = folder_imports({"p.a.x": {"p.b.y"}, "p.b.y": set(), "p.b.z": {"p.a.w"}}, "p")
    assert circles(graph) == [["p.a", "p.b", "p.a"]]


@pytest.mark.parametrize(
    ("environment", "package", "absent"),
    [
        (".venvs/server", "container", ("boto3", "aws_cdk", "torch", "transformers")),
        (".venvs/builder", "engine_build", ("aws_cdk", "uvicorn")),
        (".venv", "stacks", ("torch", "onnxruntime", "uvicorn")),
        (".venv", "roundhouse", ("torch", "onnxruntime", "uvicorn")),
        (".venv", "onboarding", ("torch", "onnxruntime", "uvicorn")),
    ],
)
def test_package_imports_without_its_neighbours_dependencies(environment, package, absent):
    script = (
        "import importlib, importlib.util, pkgutil, sys\n"
        f"assert not [n for n in {absent!r} if importlib.util.find_spec(n)], 'installed'\n"
        f"package = importlib.import_module({package!r})\n"
        "def skipped(n): return n.endswith('__main__') or n.startswith('container.triton.')\n"
        "walk = pkgutil.walk_packages(package.__path__, package.__name__ + '.')\n"
        "names = [module.name for module in walk if not skipped(module.name)]\n"
        "[importlib.import_module(name) for name in names]\n"
        "print(len(names))\n"
    )
    python = ROOT / environment / "bin" / "python"
    result = subprocess.run(
        (str(python), "-c", script), cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    assert int(result.stdout) > 0


def test_quantizer_of_text_generators_needs_no_onnx():
    """Its environment, and its image, have neither onnx nor ONNX Runtime."""
    script = (
        "import importlib, pkgutil, sys\n"
        "sys.modules.update({'onnx': None, 'onnxruntime': None})\n"
        "package = importlib.import_module('engine_build.text_generation')\n"
        "walk = pkgutil.walk_packages(package.__path__, package.__name__ + '.')\n"
        "[importlib.import_module(m.name) for m in walk if not m.name.endswith('__main__')]\n"
    )
    python = ROOT / ".venvs" / "builder" / "bin" / "python"
    result = subprocess.run(
        (str(python), "-c", script), cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
