"""The `github` of environment files: added without losing a byte, or refused; written with all."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from onboarding.environment_spec import GithubSpec
from onboarding.tree import read_tree
from onboarding.yaml_text import load_yaml
from roundhouse.cli.app import app
from roundhouse.errors import RoundhouseError, UsageError
from roundhouse.gitops.set_up import block_steps, environment_edits, repository_of
from tests.unit.roundhouse.engines import copied_tree

pytestmark = pytest.mark.unit

GITHUB = GithubSpec(repository="acme/models", repository_id=456789, owner_id=123456)
LINE = "github: {repository: acme/models, repository_id: 456789, owner_id: 123456}"
REQUIRED = 'name: dev\naccount: "111122223333"\nregion: eu-west-1\n'
IDS = ("--repository", "acme@123456/models@456789")


def edits(tree, github=GITHUB):
    return environment_edits(tree, read_tree(tree).environments, github)


@pytest.fixture
def tree_of(tmp_path):
    """Write environments/dev.yaml; return the folder."""

    def write(text):
        folder = tmp_path / "environments"
        folder.mkdir(exist_ok=True)
        (folder / "dev.yaml").write_bytes(text.encode())
        return tmp_path

    return write


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_block_is_one_line_more_and_every_comment_stays(tree_of, newline):
    text = f"# ours\n{REQUIRED}platform: triton-26.05   # TensorRT, ä\n\n# left out: a\n"
    text = text.replace("\n", newline)
    (edited,) = edits(tree_of(text)).values()
    lines = edited.split(newline)
    assert lines[4:6] == ["platform: triton-26.05   # TensorRT, ä", LINE]
    assert newline.join(lines[:5] + lines[6:]) == text
    assert load_yaml(edited)["github"] == GITHUB.model_dump(exclude_none=True)


def test_file_whose_last_line_has_no_end_is_edited(tree_of):
    (edited,) = edits(tree_of(f"{REQUIRED}platform: triton-26.05")).values()
    assert edited.endswith(f"platform: triton-26.05\n{LINE}\n")


def test_block_that_is_there_is_left(tree_of):
    assert edits(tree_of(f"{REQUIRED}platform: triton-26.05\n{LINE}\n")) == {}


def test_refuses_other_values_naming_each(tree_of):
    tree = tree_of(f"{REQUIRED}platform: triton-26.05\n{LINE}\n")
    other = GITHUB.model_copy(update={"repository": "acme/other", "owner_id": 1})
    message = r"`github.repository` is acme/models, given acme/other.*`github.owner_id` is 123456"
    with pytest.raises(RoundhouseError, match=message):
        edits(tree, other)


@pytest.mark.parametrize(
    "text",
    [
        '{name: dev, account: "111122223333", region: eu-west-1, platform: triton-26.05}\n',
        '{name: dev, account: "111122223333", region: eu-west-1,\n platform: triton-26.05\n}\n',
    ],
)
def test_refuses_a_file_without_lines_of_its_own(tree_of, text):
    with pytest.raises(RoundhouseError, match=r"dev\.yaml: add the line `github: .* by hand"):
        edits(tree_of(text))


def test_repository_has_its_numbers_or_none():
    assert repository_of("acme@123456/models@456789") == ("acme/models", GITHUB)
    assert repository_of("acme/models") == ("acme/models", None)


@pytest.mark.parametrize(
    "text", ["models", "acme/models@1", "acme@1/models", "acme@0/models@1", "a@1/m@-2", "../x", ""]
)
def test_refuses_what_names_no_repository(text):
    with pytest.raises(UsageError, match=r"--repository .*: give OWNER/NAME, or OWNER@ID/NAME@ID"):
        repository_of(text)


def test_steps_name_each_file_and_the_command_for_the_numbers(tree_of):
    environments = read_tree(tree_of(f"{REQUIRED}platform: triton-26.05\n")).environments
    line, command = block_steps(environments, "acme/models")
    assert line == "environments/dev.yaml: add `" + (
        "github: {repository: acme/models, repository_id: ID, owner_id: OWNER_ID}`."
    )
    assert "gh api repos/acme/models --jq" in command
    assert "this command with that as --repository" in command


@pytest.fixture
def init(tmp_path):
    """Run `new --workflows` on a copy of the repository's files."""
    tree = copied_tree(tmp_path)

    def run(*options):
        words = ["new", "--workflows", "github", "--owners", "@acme/a", "--root", str(tree)]
        return CliRunner().invoke(app, [*words, *options])

    run.tree = tree
    return run


def test_init_adds_the_block_beside_the_workflows_once(init):
    before = (init.tree / "environments" / "local.yaml").read_bytes()
    first = init(*IDS)
    assert first.exit_code == 0 and "Edited    environments/dev.yaml" in first.output
    assert read_tree(init.tree).environments["dev"].github == GITHUB
    assert (init.tree / "environments" / "local.yaml").read_bytes() == before
    again = init(*IDS)
    assert again.exit_code == 0 and "Edited" not in again.output


def test_init_without_the_numbers_prints_the_line_and_edits_nothing(init):
    before = (init.tree / "environments" / "dev.yaml").read_bytes()
    shown = " ".join(init("--repository", "acme/models").output.split())
    assert "environments/dev.yaml: add `github: {repository: acme/models" in shown
    assert (init.tree / "environments" / "dev.yaml").read_bytes() == before


def test_refuses_another_repository_before_anything_is_written(init):
    path = init.tree / "environments" / "dev.yaml"
    path.write_text(path.read_text() + LINE.replace("456789", "1") + "\n")
    refused = init(*IDS)
    assert refused.exit_code == 1
    assert not (init.tree / ".github").exists()


def test_workflows_that_cannot_be_written_leave_the_environments_as_they_were(init):
    before = (init.tree / "environments" / "dev.yaml").read_bytes()
    (init.tree / "renovate.json").write_text("{}")
    assert init(*IDS).exit_code == 1
    assert (init.tree / "environments" / "dev.yaml").read_bytes() == before
