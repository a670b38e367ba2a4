"""Making environments: whole or not at all, and only what is missing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from roundhouse.dev.environments import Workshop, main, prepare, prepare_for_team
from roundhouse.dev.recipes import (
    DEV_STAMP,
    LOCAL,
    NODE,
    OPTIONAL,
    RECIPES,
    STAMP,
)
from roundhouse.errors import NotReadyError
from roundhouse.processes import Command, Outcome
from tests.unit.roundhouse.dev.test_doctor import SOUND


class Runner:
    """Makes the folders that real commands would; `failing` names the command that fails.

    `has_index`: PyTorch's index answers.
    """

    def __init__(self, root: Path) -> None:
        self.root, self.commands, self.failing, self.output = root, [], None, "boom"
        self.has_index = False

    def __call__(self, command: Command, on_line=None) -> Outcome:
        self.commands.append(command)
        if self.failing is not None and self.failing in str(command):
            return Outcome(code=2, output=self.output)
        if "--dry-run" in command.argv:
            return Outcome(code=0 if self.has_index else 1, output="")
        if "requirements/torch-" in command.argv[-1]:
            build = "2.13.0+cpu" if "torch-cpu" in command.argv[-1] else "2.13.0"
            packages = Path(command.argv[command.argv.index("--python") + 1]).parents[1]
            info = f"lib/python3.11/site-packages/torch-{build}.dist-info"
            (packages / info).mkdir()
        if command.argv[1:3] == ("-m", "venv") or command.argv[1] == "venv":
            folder = Path(command.argv[-1])
            (folder / "bin").mkdir(parents=True)
            (folder / "lib" / "python3.11" / "site-packages").mkdir(parents=True)
        if command.argv[0] == "npm":
            (self.root / "node_modules").mkdir(exist_ok=True)
        return Outcome(code=0, output="")


@pytest.fixture
def workshop(tmp_path):
    (tmp_path / "requirements").mkdir()
    files = {file for recipe in RECIPES for file in (*recipe.inputs, recipe.dev) if file}
    torch = ("requirements/torch-cpu.txt", "requirements/torch-cuda.txt")
    for name in (*files, *torch, "requirements/uv.txt"):
        (tmp_path / name).write_text(f"# {name}\n")
    python = Path("/usr/bin/python3.11")
    return Workshop(root=tmp_path, python=python, run=Runner(tmp_path), say=lambda line: None)


def test_every_environment_is_made_and_stamped_once(workshop):
    folders = [workshop.root / recipe.folder for recipe in RECIPES]
    assert set(prepare(workshop)) == {recipe.name for recipe in RECIPES}
    assert all((folder / STAMP).is_file() for folder in folders)
    assert not any((folder / DEV_STAMP).is_file() for folder in folders)
    workshop.run.commands.clear()
    assert prepare(workshop) == ()
    assert workshop.run.commands == []


def test_refuses_a_folder_that_a_link_leads_out_of_the_repository(workshop, tmp_path_factory):
    other = tmp_path_factory.mktemp("other-checkout")
    for recipe in RECIPES:
        (other / recipe.folder).mkdir(parents=True)
        (other / recipe.folder / STAMP).write_text("of other files")
    for link in (".venv", ".venvs", "node_modules"):
        (workshop.root / link).symlink_to(other / link)
    for recipe in RECIPES:
        with pytest.raises(NotReadyError, match=r"outside this repository.*; remove the link"):
            prepare(workshop, (recipe,))
        assert (other / recipe.folder / STAMP).is_file()
    assert workshop.run.commands == []


def test_a_changed_lock_file_makes_only_its_environment_again(workshop):
    prepare(workshop)
    old = workshop.root / ".venvs" / "server" / "stale-file"
    old.write_text("from before")
    (workshop.root / "requirements" / "server.txt").write_text("other\n")
    assert prepare(workshop) == ("server",)
    assert not old.exists()


def test_the_roundhouse_command_is_installed_and_kept_up_to_date(workshop):
    prepare(workshop)
    script = workshop.root / ".venv" / "bin" / "roundhouse"
    text = script.read_text()
    assert script.stat().st_mode & 0o111
    compile(text, str(script), "exec")
    path_file = workshop.root / ".venv/lib/python3.11/site-packages/roundhouse.pth"
    assert path_file.read_text().strip() == str(workshop.root)
    script.write_text("of an earlier day")
    assert prepare(workshop) == ()
    assert script.read_text() == text


def test_a_team_has_its_environments_beside_its_files_by_the_locks_of_the_package(workshop):
    team = replace(workshop, root=workshop.root / "team", code=workshop.root)
    team.root.mkdir()
    for name in NODE.inputs:
        (team.root / name).write_text("{}")
    team.run.root = team.root
    prepare_for_team(team, SOUND)
    folders = [team.root / recipe.folder for recipe in (*LOCAL, NODE)]
    assert all((folder / STAMP).is_file() for folder in folders)
    assert not (team.root / ".venv").exists() and not (workshop.root / ".venvs").exists()
    installs = [command for command in team.run.commands if "--require-hashes" in command.argv]
    locks = {Path(command.argv[command.argv.index("-r") + 1]).parent for command in installs}
    assert locks == {workshop.root / "requirements"}
    team.run.commands.clear()
    prepare_for_team(team, replace(SOUND, has_libpython=False))
    assert team.run.commands == []


def test_refuses_a_machine_that_lacks_something_before_a_team_waits(workshop):
    team = replace(workshop, code=workshop.root)
    with pytest.raises(NotReadyError, match=r"missing: libpython3\.11"):
        prepare_for_team(team, replace(SOUND, has_libpython=False))
    assert team.run.commands == []


@pytest.mark.parametrize(("has_index", "build"), [(True, "torch-cpu"), (False, "torch-cuda")])
def test_pytorchs_index_is_requested_once_for_all_environments(workshop, has_index, build):
    workshop.run.has_index = has_index
    for name in ("quantizer", "vllm"):
        (workshop.root / f"requirements/{name}.txt").write_text("")
    prepare(workshop, (*RECIPES, OPTIONAL["quantizer"], OPTIONAL["vllm"]))
    commands = list(map(str, workshop.run.commands))
    assert sum("--dry-run" in command for command in commands) == 1
    assert sum(command.endswith(f"{build}.txt") for command in commands) == 3 + has_index


@pytest.mark.parametrize("name", OPTIONAL)
def test_optional_environment_is_made_alone_and_only_by_its_name(workshop, name):
    recipe = OPTIONAL[name]
    assert recipe not in RECIPES and name == recipe.name
    for file in filter(None, (*recipe.inputs, recipe.dev)):
        (workshop.root / file).write_text(f"# {file}\n")
    assert main([name], workshop) == 0
    made = {path.parent.name for path in (workshop.root / ".venvs").glob(f"*/{STAMP}")}
    assert made == {"uv", name}
    assert main(["--also", name], workshop) == 0
    assert not any(map(workshop.is_missing, (recipe, *RECIPES)))


def test_refuses_a_half_made_environment(workshop):
    workshop.run.failing = "requirements/triton.txt"
    message = r"\.venvs/triton could not be made: .* ended with 2: boom"
    with pytest.raises(NotReadyError, match=message):
        prepare(workshop)
    assert not (workshop.root / ".venvs" / "triton" / STAMP).exists()
    assert main([], workshop) == 5
    workshop.run.failing = None
    assert "triton" in prepare(workshop)


def test_refuses_an_environment_that_cannot_import_what_it_is_made_for(workshop):
    workshop.run.failing = "import onnx"
    workshop.run.output = "Traceback\nValueError: libcublasLt.so.*[0-9] not found\n"
    message = (
        r"\.venvs/builder is installed, but cannot be used: .*import onnx, .*torch'` ended with 2: "
        r"ValueError: libcublasLt\.so.* not found; install what it names"
    )
    with pytest.raises(NotReadyError, match=message):
        prepare(workshop)
    assert not (workshop.root / ".venvs" / "builder" / STAMP).exists()
    workshop.run.failing = None
    assert "builder" in prepare(workshop)
