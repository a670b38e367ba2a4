"""A whole environment is deleted only by its name, and the command says what stays."""

from __future__ import annotations

from dataclasses import replace

import pytest

from roundhouse.cli.destroy import destroy, destroy_environment
from roundhouse.errors import DeployFailedError, UsageError
from tests.unit.roundhouse.deploy.test_destroy import ENDPOINTS, SHARED, DeletingAccount
from tests.unit.roundhouse.deploy.whole_session import whole_session


@pytest.fixture
def session(tmp_path):
    account = DeletingAccount(*ENDPOINTS[:1], *SHARED)
    account.describe_images = lambda repositoryName: iter(())
    return replace(whole_session(tmp_path), clients=account)


@pytest.mark.parametrize(
    ("confirm", "message"),
    [
        (None, "nobody can be asked, .* add --confirm dev to delete them"),
        ("prod", "Nothing was deleted: 'prod' is not dev"),
        ("", "Nothing was deleted: '' is not dev"),
    ],
)
def test_refuses_without_the_environments_name(session, confirm, message):
    with pytest.raises(DeployFailedError, match=message):
        destroy_environment(session, session.paths, confirm, builds=True)
    assert session.clients.did == []


def test_deletes_what_it_lists_and_says_what_stays(session):
    destroy_environment(session, session.paths, "dev", builds=False)
    destroy_environment(session, session.paths, None, builds=False)
    output = session.report.console.file.getvalue()
    assert f"  {ENDPOINTS[0]}\n" in output and "Deleted 1 stack." in output
    assert "Kept, and still paid for: s3://roundhouse-dev-" in output
    assert "Nothing to delete: dev has no such stack." in output


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"yes": True}, "--yes is for one endpoint; .*--confirm dev"),
        ({"endpoint": "a", "builds": True}, "name no endpoint"),
        ({"endpoint": "a", "confirm": "dev"}, "name no endpoint"),
    ],
)
def test_refuses_options_that_do_not_fit(options, message):
    with pytest.raises(UsageError, match=message):
        destroy("dev", **options)
