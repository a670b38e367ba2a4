"""What lets PromQL read SageMaker's metrics: OTel enrichment, one in an account and region."""

from __future__ import annotations

from aws_cdk import RemovalPolicy
from aws_cdk import aws_cloudwatch as cw
from aws_cdk import aws_observabilityadmin as observability
from constructs import Construct


class MetricEnrichment(Construct):
    """Turns OTel enrichment on for the metrics of AWS services, and resource tags, which it needs.

    AWS takes 0.50 USD a GB, other services' metrics included. Both stay when the stack goes: other
    stacks' alarms may need them.
    Source: CloudWatch user guide, "Get started with CloudWatch SageMaker AI Insights".
    """

    def __init__(self, scope: Construct, construct_id: str) -> None:
        super().__init__(scope, construct_id)
        self.tags = observability.CfnTelemetryEnrichment(self, "Tags", scope="ACCOUNT")
        # The CDK's own validation knows no filters of it yet, by which it would cost less.
        self.enrichment = cw.CfnOTelEnrichment(self, "Enrichment")
        self.enrichment.node.add_dependency(self.tags)
        for resource in (self.tags, self.enrichment):
            resource.apply_removal_policy(RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE)
