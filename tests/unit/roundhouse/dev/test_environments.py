"""Making environments: whole or not at all, and only what is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from roundhouse.dev.environments import Workshop, main, prepare
from roundhouse.dev.recipes import (
    DEV_STAMP,
    OPTIONAL,
    RECIPES,
    STAMP,
    TORCH,
    creation_commands,
    lock_commands,
)
from roundhouse.errors import NotReadyError
from roundhouse.processes import Command, Outcome


class Runner:
    """Makes the folders that real commands would; `failing` names the command that fails."""

    def __init__(self, root: Path) -> None:
        self.root, self.commands, self.failing, self.output = root, [], None, "boom"

    def __call__(self, command: Command, on_line=None) -> Outcome:
        self.commands.append(command)
        if self.failing is not None and self.failing in str(command):
            return Outcome(code=2, output=self.output)
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
    for name in (*files, "requirements/uv.txt"):
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


def test_a_changed_lock_file_makes_only_its_environment_again(workshop):
    prepare(workshop)
    old = workshop.root / ".venvs" / "server" / "stale-file"
    old.write_text("from before")
    (workshop.root / "requirements" / "server.txt").write_text("other\n")
    assert prepare(workshop) == ("server",)
    assert not old.exists()


def test_dev_additions_do_not_remake_the_environment(workshop):
    prepare(workshop)
    kept = workshop.root / ".venv" / "kept"
    kept.write_text("")
    assert set(prepare(workshop, dev=True)) == {"builder", "roundhouse", "server"}
    assert kept.exists()
    assert prepare(workshop, dev=True) == prepare(workshop) == ()


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


def test_requirements_are_hashed_and_torch_comes_by_plain_pip_without_dependencies():
    root, python = Path("/r"), Path("/usr/bin/python3.11")
    commands = [str(c) for recipe in RECIPES for c in creation_commands(recipe, root, python)]
    installs = [command for command in commands if "pip install" in command]
    assert all("--require-hashes" in command for command in installs if TORCH not in command)
    (torch,) = [command for command in installs if TORCH in command]
    assert torch.startswith("/r/.venvs/builder/bin/python -m pip install")
    assert "--no-deps" in torch
    assert sum("npm ci" in command for command in commands) == 1


@pytest.mark.parametrize("name", OPTIONAL)
def test_optional_environment_is_made_alone_and_only_by_its_name(workshop, name):
    recipe = OPTIONAL[name]
    assert recipe not in RECIPES and name == recipe.name
    for file in filter(None, (*recipe.inputs, recipe.dev)):
        (workshop.root / file).write_text(f"# {file}\n")
    assert main([name], workshop) == 0
    made = {path.parent.name for path in (workshop.root / ".venvs").glob(f"*/{STAMP}")}
    assert made == {"uv", name}


def test_refuses_an_unknown_name_of_an_environment(workshop, capsys):
    with pytest.raises(SystemExit):
        main(["quantiser"], workshop)
    error = capsys.readouterr().err
    assert "unknown environment quantiser; allowed: platform, bench, quantizer" in error


def test_lock_compiles_every_input_file(workshop):
    (workshop.root / "requirements" / "cloud.in").write_text("")
    assert main(["--lock"], workshop) == 0
    assert str(workshop.run.commands[-1]).endswith("cloud.in -o cloud.txt")
    plain, of_gpus = map(str, lock_commands(("vllm", "vllm-gpu"), workshop.root))
    assert "--excludes" in plain and "--excludes" not in of_gpus


def test_refuses_a_half_made_environment(workshop):
    workshop.run.failing = "requirements/triton.txt"
    message = r"\.venvs/triton could not be made: .* ended with 2: boom"
    with pytest.raises(NotReadyError, match=message):
        prepare(workshop)
    assert not (workshop.root / ".venvs" / "triton" / STAMP).exists()
    workshop.run.failing = None
    assert "triton" in prepare(workshop)


def test_refuses_a_missing_network_in_one_sentence(workshop, capsys):
    workshop.run.failing = "requirements/uv.txt"
    workshop.run.output = "error: Failed\n  Caused by: dns error: failed to lookup address\n"
    assert main([], workshop) == 5
    error = capsys.readouterr().err
    assert "check the network" in error and error.count("\n") == 1
