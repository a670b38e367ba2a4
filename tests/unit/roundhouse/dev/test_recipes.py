"""The two builds of torch: their locks, and the indexes that environments take them from."""

from __future__ import annotations

import functools
import hashlib
import re
import socket
import sys
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from roundhouse.dev.environments import Workshop, choose_torch, make
from roundhouse.dev.recipes import (
    CUDA_BUILD,
    OPTIONAL,
    PROBE_SECONDS,
    RECIPES,
    TORCH_CPU,
    TORCH_CUDA,
    Recipe,
    cpu_build,
)
from roundhouse.errors import NotReadyError
from roundhouse.processes import Processes
from tests.locked_requirements import _pinned, _wanted

pytestmark = pytest.mark.unit

ROOT = Path(__file__).resolve().parents[4]
REQUIREMENTS = ROOT / "requirements"
UV = Path(sys.prefix).parent / ".venvs" / "uv"
WITH_TORCH = [recipe for recipe in (*RECIPES, *OPTIONAL.values()) if recipe.has_torch]
WHEEL = "torch-2.13.0+cpu-py3-none-any.whl"
SOURCES = ("Dockerfile*", "*.in", "*.md", "*.py", "*.sh", "*.toml", "*.txt", "*.y*ml", "Makefile")
LEFT_OUT = {"build", "node_modules", "cdk.out", "CHANGELOG.md", Path(__file__).name}
ASKS = re.compile(r"""\binstall\b.*?[\s"'(]torch(?:[=<>~! "'\]]|$)""")


def pins(name: str) -> dict[str, str]:
    text = (REQUIREMENTS / f"{name}.txt").read_text()
    return dict(re.findall(r"^([\w.-]+)==(\S+) \\$", text, re.MULTILINE))


def test_both_builds_of_torch_are_of_one_version_and_hashed():
    cpu, cuda = pins(TORCH_CPU), pins(TORCH_CUDA)
    assert cpu == {"torch": f"{cuda['torch']}+cpu"}
    digests = re.findall(
        r"--hash=sha256:[0-9a-f]{64}\b", (REQUIREMENTS / "torch-cpu.txt").read_text()
    )
    assert len(digests) == len(set(digests)) >= 2


@pytest.mark.parametrize("recipe", WITH_TORCH, ids=lambda recipe: recipe.name)
def test_lock_beside_torch_has_what_torch_needs_and_pins_nothing_otherwise(recipe):
    beside, cuda = pins(recipe.name), pins(TORCH_CUDA)
    assert _wanted(REQUIREMENTS / "torch-needs.txt") <= beside.keys()
    assert "torch" not in beside
    shared = beside.keys() & cuda.keys()
    assert {name: beside[name] for name in shared} == {name: cuda[name] for name in shared}


def test_libraries_of_torch_are_those_of_every_lock_that_holds_it():
    libraries = {name for name in pins(TORCH_CUDA) if name.startswith("nvidia-")} | {"triton"}
    assert len(libraries) > 10
    texts = {path: path.read_text() for path in ROOT.glob("**/*requirements*/*.txt")}
    whole = [path.stem for path, text in texts.items() if re.search(r"^torch==[\d.]+ ", text, re.M)]
    assert sorted(whole) == ["server-baseline-gpu", TORCH_CUDA, "vllm-gpu"]
    assert [
        name for name in whole if not libraries <= _pinned(texts[REQUIREMENTS / f"{name}.txt"])
    ] == []


def sources() -> Iterator[Path]:
    """The files of the tree that can install something."""
    for pattern in SOURCES:
        for path in ROOT.rglob(pattern):
            parts = path.relative_to(ROOT).parts
            if not any(part in LEFT_OUT or part.startswith(".venv") for part in parts):
                yield path


def torch_requests(text: str) -> list[str]:
    """The commands that install torch by its name, not by a lock."""
    words = re.sub(r"""["'],\s*["']""", " ", re.sub(r"\\\n\s*", "", text))
    return [line.strip() for line in words.splitlines() if ASKS.search(line)]


def test_no_file_of_the_tree_asks_for_torch_without_its_libraries():
    found = {str(path): torch_requests(path.read_text(errors="replace")) for path in set(sources())}
    assert len(found) > 500
    assert {path: lines for path, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    "text",
    [
        "pip install --no-deps torch==2.13.0",
        'RUN ["pip", "install",\n  "--no-deps", "torch"]',
        'RUN python3 -m pip install --no-deps \\\n    "torch==${TORCH}"',
        "uv pip install torch>=2",
    ],
)
def test_refuses_torch_by_its_name(text):
    assert len(torch_requests(text)) == 1
    assert torch_requests("pip install -r requirements/torch-cuda.txt") == []


class Quiet(SimpleHTTPRequestHandler):
    """Serves a folder in silence."""

    def log_message(self, *arguments: object) -> None:
        """Print nothing."""


@contextmanager
def index(folder: Path) -> Iterator[str]:
    """A package index on this machine, of the files of a folder; gives its address."""
    with ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Quiet, directory=folder)
    ) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/simple"
        finally:
            server.shutdown()
            thread.join()


def write_wheel(folder: Path) -> str:
    """Write a torch of one line and its page below folder/simple; return its digest."""
    page = folder / "simple" / "torch"
    page.mkdir(parents=True)
    info = "torch-2.13.0+cpu.dist-info"
    files = {
        "torch.py": "__version__ = '2.13.0+cpu'\n",
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: torch\nVersion: 2.13.0+cpu\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    with zipfile.ZipFile(page / WHEEL, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
        archive.writestr(f"{info}/RECORD", "".join(f"{name},,\n" for name in files))
    digest = hashlib.sha256((page / WHEEL).read_bytes()).hexdigest()
    link = WHEEL.replace("+", "%2B")
    (page / "index.html").write_text(f'<a href="{link}#sha256={digest}">{WHEEL}</a>')
    return digest


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A repository of two environments with torch, whose lock for CPUs has one digest."""
    if not UV.is_dir():
        pytest.skip(f"{UV} is not made: make environments")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    root = tmp_path / "tree"
    (root / "requirements").mkdir(parents=True)
    (root / ".venvs").mkdir()
    (root / ".venvs" / "uv").symlink_to(UV)
    digest = write_wheel(tmp_path / "index")
    (root / "requirements/torch-cpu.txt").write_text(f"torch==2.13.0+cpu --hash=sha256:{digest}\n")
    (root / "requirements/torch-cuda.txt").write_text("torch==2.13.0\n")
    for name in ("one", "two"):
        (root / f"requirements/{name}.txt").write_text("# nothing\n")
    return root


def recipe(name: str) -> Recipe:
    lock = f"requirements/{name}.txt"
    return Recipe(name=name, folder=f".venvs/{name}", inputs=(lock,), modules=("torch",))


def workshop(root: Path, index: str | None, lines: list[str]) -> Workshop:
    python = Path(sys.executable).resolve()
    return Workshop(root=root, python=python, run=Processes(), say=lines.append, torch_index=index)


def test_environments_take_torch_from_an_index_that_answers_and_share_its_files(tree, tmp_path):
    lines: list[str] = []
    with index(tmp_path / "index") as address:
        ours = workshop(tree, address, lines)
        build = choose_torch(ours)
        assert build == cpu_build(address) and lines == []
        for name in ("one", "two"):
            make(ours, recipe(name), torch=build)
    one, two = (
        tree.glob(f".venvs/{name}/lib/python3*/site-packages/torch.py") for name in ("one", "two")
    )
    assert next(one).samefile(next(two))
    assert not any(map(ours.is_missing, map(recipe, ("one", "two"))))


def test_refuses_a_wheel_whose_digest_the_lock_has_not(tree, tmp_path):
    lock = tree / "requirements/torch-cpu.txt"
    lock.write_text(f"torch==2.13.0+cpu --hash=sha256:{'0' * 64}\n")
    with index(tmp_path / "index") as address:
        ours = workshop(tree, address, [])
        message = r"\.venvs/one could not be made: .*another file than the lock's digest names"
        with pytest.raises(NotReadyError, match=message):
            make(ours, recipe("one"), torch=choose_torch(ours))
    assert ours.is_missing(recipe("one"))


def test_index_that_does_not_answer_is_given_up(tree):
    assert PROBE_SECONDS <= 10
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = f"http://127.0.0.1:{closed.getsockname()[1]}/simple"
    lines: list[str] = []
    assert choose_torch(workshop(tree, address, lines)) == CUDA_BUILD
    assert len(lines) == 1


def test_pytorchs_index_is_named_by_uv():
    assert cpu_build(None).options == ("--torch-backend", "cpu")
