"""What survives every deployment: artifact store, image repositories, VPC endpoints."""

from __future__ import annotations

from collections.abc import Sequence

from constructs import Construct

from onboarding.environment_spec import EnvironmentSpec
from roundhouse_cdk.artifact_store import ArtifactStore, ArtifactStoreProps
from roundhouse_cdk.engine_images import EngineImages, EngineImagesProps
from roundhouse_cdk.slack_alarms import SlackAlarms, SlackAlarmsProps
from roundhouse_cdk.vpc_endpoints import VpcEndpoints, VpcEndpointsProps
from stacks.environment_stack import EnvironmentStack
from stacks.images import DOCKERFILES
from stacks.logical_ids import OWN, keep_logical_ids


class FoundationStack(EnvironmentStack):
    """Deploys first, changes rarely, and keeps its contents when it is deleted.

    `receivers` are the environments whose workflows promote from this one; those of other
    accounts may read them.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        environment: EnvironmentSpec,
        receivers: Sequence[EnvironmentSpec] = (),
    ) -> None:
        super().__init__(
            scope,
            construct_id,
            environment,
            part="foundation",
            description="foundation",
            is_protected=True,
        )
        props = ArtifactStoreProps(environment=environment, receivers=receivers)
        store = self.store = ArtifactStore(self, OWN, props=props)
        images = EngineImagesProps(environment=environment, images=tuple(DOCKERFILES))
        self.images = EngineImages(store, OWN, props=images)
        l1 = ("Alarms", "AlarmsPolicy", "AlarmEmail", "AlarmHttps", "Answers", "AnswersPolicy")
        topics = [item for item in store.node.children if item.node.id.startswith(l1)]
        keep_logical_ids(store, *topics)
        if environment.alarm_slack is not None:
            slack = SlackAlarmsProps(
                environment=environment, slack=environment.alarm_slack, topic=store.alarm_topic
            )
            keep_logical_ids(SlackAlarms(self, "SlackAlarms", props=slack))
        network = environment.network
        if network is not None and network.vpc_endpoints:
            endpoints = VpcEndpointsProps(environment=environment, network=network)
            keep_logical_ids(VpcEndpoints(self, "VpcEndpoints", props=endpoints))
