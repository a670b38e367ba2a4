"""The stack of one endpoint, of engines or of a text generator: what its template says."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from aws_cdk import (
    Annotations,
    App,
    BootstraplessSynthesizer,
    CfnOutput,
    CfnRule,
    CfnRuleAssertion,
    CfnWaitConditionHandle,
    Fn,
    Stack,
)
from aws_cdk import aws_sns as sns
from constructs import Construct, IConstruct

from onboarding import arns
from onboarding.deployment import DeployedEndpoint, Deployment
from onboarding.metrics import Alarm, PromQL, ScaledCount, Section
from onboarding.text_generation.generation_deployment import GenerationDeployment
from roundhouse_cdk.endpoint_alarms import EndpointAlarms, EndpointAlarmsProps
from roundhouse_cdk.endpoint_dashboard import EndpointDashboard, EndpointDashboardProps
from roundhouse_cdk.endpoint_scaling import EndpointScaling, EndpointScalingProps
from roundhouse_cdk.hosting import HostedEndpoint
from roundhouse_cdk.realtime_endpoint import MultiModelEndpoint, RealtimeEndpoint
from roundhouse_cdk.text_generation_endpoint import TextGenerationEndpoint
from stacks.alarms.endpoint import endpoint_alarms
from stacks.dashboards.endpoint import dashboard_name, endpoint_sections
from stacks.endpoint.findings import endpoint_faults, endpoint_notes, endpoint_warnings
from stacks.endpoint.outputs import endpoint_outputs
from stacks.endpoint.props import archives, endpoint_props
from stacks.environment_stack import EnvironmentStack
from stacks.generation import alarms as generation_alarms
from stacks.generation import dashboard as generation_dashboard
from stacks.generation import scaling as generation_scaling
from stacks.generation.faults import generation_faults, generation_notes
from stacks.generation.props import generation_props
from stacks.logical_ids import OWN, keep_ids
from stacks.scaling.counts import scaled_counts

CONTEXT = {
    "@aws-cdk/aws-iam:minimizePolicies": True,
    "@aws-cdk/core:enablePartitionLiterals": True,
}
"""What of cdk.json's context decides a template."""

SILENT = (
    "alarms on PromQL stay silent until OTel enrichment is on in the account and region, for which"
    " AWS takes 0.50 USD a GB: write `otel_enrichment: create` in the environment's file, or"
    " `otel_enrichment: exists` where another stack or `aws cloudwatch start-otel-enrichment` has"
    " turned it on"
)
"""What a person should know of an environment that says nothing of it."""

Template = dict[str, Any]
"""`Resources`, `Outputs` and the like, as CloudFormation spells them."""


def endpoint_template(
    endpoint: Deployment | GenerationDeployment, image_uris: Mapping[str, str]
) -> Template:
    """Return the template of an endpoint's stack, as the CDK writes it to deploy it.

    One that cannot be deployed has no resource.
    """
    if isinstance(endpoint, GenerationDeployment):
        if generation_faults(endpoint):
            return {"Resources": {}}
        return synthesize(
            lambda app: GenerationEndpointStack(
                app, "Endpoint", deployment=endpoint, image_uris=image_uris
            )
        )
    if endpoint_faults(endpoint):
        return {"Resources": {}}
    return synthesize(
        lambda app: EndpointStack(app, "Endpoint", deployment=endpoint, image_uris=image_uris)
    )


def synthesize(make_stack: Callable[[App], Stack]) -> Template:
    """Return the template of the one stack that is made in an app."""
    with tempfile.TemporaryDirectory(prefix="roundhouse-synth-") as folder:
        app = App(
            outdir=folder,
            context=CONTEXT,
            default_stack_synthesizer=BootstraplessSynthesizer(),
            analytics_reporting=False,
            stack_traces=False,
            tree_metadata=False,
        )
        stack = make_stack(app)
        template: Template = app.synth().get_stack_by_name(stack.stack_name).template
        return template


class EndpointStackBase(EnvironmentStack):
    """A stack of one endpoint; one that cannot be deployed carries an error for each reason."""

    def __init__(self, scope: Construct, construct_id: str, *, endpoint: DeployedEndpoint) -> None:
        self._spec = endpoint.environment
        super().__init__(
            scope,
            construct_id,
            endpoint.environment,
            part=f"endpoint-{endpoint.name}",
            description=f"endpoint {endpoint.name}",
            is_protected=True,
            tags={"roundhouse-endpoint": endpoint.name},
        )

    def add_endpoint(self, endpoint: HostedEndpoint, outputs: Mapping[str, str]) -> None:
        """Give an endpoint's constructs their logical ids, and add outputs beside its name."""
        version, logs = endpoint.version_policy, endpoint.log_groups
        kept = (endpoint.role, version, *logs)
        keep_ids({construct.node.id: construct for construct in kept})
        named = {"EndpointName": endpoint.endpoint.attr_endpoint_name, **outputs}
        for name, value in named.items():
            CfnOutput(self, name, value=value)

    def add_watching(
        self, server: IConstruct, alarms: Sequence[Alarm], counts: Sequence[ScaledCount]
    ) -> None:
        """Add alarms and scaling, which wait for what answers; it waits for the rollback alarms."""
        topic = sns.Topic.from_topic_arn(self, "AlarmTopic", arns.alarm_topic(self._spec))
        props = EndpointAlarmsProps(alarms=alarms, topic=topic)
        made = EndpointAlarms(self, "Alarms", props=props)
        if any(isinstance(alarm.watched, PromQL) for alarm in alarms) and (
            self._spec.otel_enrichment is None
        ):
            Annotations.of(self).add_warning(SILENT)
        server.node.add_dependency(made.rollback)
        made.others.node.add_dependency(server)
        scaling = EndpointScalingProps(counts=counts, server=server)
        keep_ids({**made.alarms, **EndpointScaling(self, "Scaling", props=scaling).resources})

    def add_dashboard(self, name: str, sections: Sequence[Section]) -> None:
        """Add the endpoint's own dashboard."""
        props = EndpointDashboardProps(name=name, sections=sections)
        keep_ids({"Dashboard": EndpointDashboard(self, "Overview", props=props).dashboard})

    def add_messages(self, warnings: Iterable[str], notes: Iterable[str]) -> None:
        """Show warnings and notes where the stack is synthesised."""
        for warning in warnings:
            Annotations.of(self).add_warning(warning)
        for note in notes:
            Annotations.of(self).add_info(note)

    def refuse(self, faults: tuple[str, ...], rule: str) -> None:
        """Add an error for each fault, and a rule that CloudFormation refuses for the first.

        An empty stack would make `cdk deploy --ignore-errors` delete the endpoint that still runs.
        """
        for fault in faults:
            Annotations.of(self).add_error(fault)
        CfnWaitConditionHandle(self, "NotBuilt")
        never = Fn.condition_equals(Fn.ref("AWS::Region"), "engine not built")
        assertion = CfnRuleAssertion(assert_=never, assert_description=faults[0])
        CfnRule(self, rule, assertions=[assertion])


class EndpointStack(EndpointStackBase):
    """Deploys one endpoint of engines."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        deployment: Deployment,
        image_uris: Mapping[str, str],
    ) -> None:
        super().__init__(scope, construct_id, endpoint=deployment)
        faults = endpoint_faults(deployment)
        if faults:
            self.refuse(faults, "EngineIsBuilt")
            return
        props = endpoint_props(deployment, image_uris)
        endpoint: HostedEndpoint
        if deployment.multi_model:
            engines = archives(deployment)
            endpoint = MultiModelEndpoint(self, OWN, props=props, engines=engines)
        else:
            endpoint = RealtimeEndpoint(self, OWN, props=props)
        self.add_endpoint(endpoint, endpoint_outputs(deployment))
        self.add_watching(endpoint.endpoint, endpoint_alarms(deployment), scaled_counts(deployment))
        if deployment.endpoint.dashboard:
            self.add_dashboard(dashboard_name(deployment), endpoint_sections(deployment))
        self.add_messages(endpoint_warnings(deployment), endpoint_notes(deployment))


class GenerationEndpointStack(EndpointStackBase):
    """Deploys one text generator."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        deployment: GenerationDeployment,
        image_uris: Mapping[str, str],
    ) -> None:
        super().__init__(scope, construct_id, endpoint=deployment)
        faults = generation_faults(deployment)
        if faults:
            self.refuse(faults, "CheckpointIsBuilt")
            return
        endpoint = TextGenerationEndpoint(self, OWN, props=generation_props(deployment, image_uris))
        component = endpoint.component
        outputs = {} if component is None else {"InferenceComponentName": endpoint.endpoint_name}
        self.add_endpoint(endpoint, outputs)
        self.add_watching(
            endpoint.server,
            generation_alarms.endpoint_alarms(deployment),
            generation_scaling.scaled_counts(deployment),
        )
        sections = generation_dashboard.endpoint_sections(deployment)
        self.add_dashboard(dashboard_name(deployment), sections)
        self.add_messages((), generation_notes(deployment))
