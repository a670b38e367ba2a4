"""A plan against what is deployed, and deployments that it allows or refuses; everything real."""

from __future__ import annotations

import pytest

from roundhouse.deploy import deployment
from roundhouse.deploy.stacks import environment_templates
from roundhouse.errors import DeployFailedError
from roundhouse.gitops.compare import plan_against_deployed
from roundhouse.gitops.stale import review_of
from roundhouse.processes import Processes
from tests.local_cloud.tiny_session import deploy_all, session_at, sound_network

pytestmark = pytest.mark.local_cloud

CHANGED = {"local/Endpoint-tiny", "local/Observability"}


def test_plan_is_deployed_as_it_was_reviewed_or_not_at_all(tmp_path):
    def plan():
        templates = environment_templates(session)
        (found,) = plan_against_deployed(tiny.paths, "local", templates, Processes()).environments
        return found

    def deploy(reviewed):
        review = review_of(reviewed, session)
        options = deployment.DeployOptions(yes=True, **review)
        return deployment.deploy(session, options).deployed.changed

    with session_at(tmp_path / "session") as tiny:
        session = tiny.start()
        deploy_all(session)
        unchanged = plan()
        assert not unchanged.has_changes and unchanged.engines == ()

        tiny.write_model(
            sound_network(), endpoint="{instance_type: ml.c7i.large, scaling: {max: 3}}"
        )
        reviewed = plan()
        (endpoint,) = reviewed.endpoints
        assert (endpoint.name, endpoint.outage) == ("tiny", False)
        assert [stack.name for stack in reviewed.stacks] == ["roundhouse-local-observability"]

        tiny.write_model(
            sound_network(), endpoint="{instance_type: ml.c7i.large, scaling: {max: 4}}"
        )
        with pytest.raises(DeployFailedError, match=r"the files give stack .* another template"):
            deploy(reviewed)
        current = plan()
        assert current.id != reviewed.id
        assert set(deploy(current)) == CHANGED
        with pytest.raises(DeployFailedError, match="is deployed as planned already"):
            deploy(current)
        assert not plan().has_changes
