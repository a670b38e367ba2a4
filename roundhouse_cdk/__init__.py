"""Constructs that build and serve TensorRT engines on AWS, each with a frozen props class.

In come props, out go resources with their metrics, alarms and grants. `stacks` calls them, and any
CDK app may: they import onboarding and aws-cdk-lib alone.
"""

from roundhouse_cdk.artifact_store import ArtifactStore as ArtifactStore
from roundhouse_cdk.artifact_store import ArtifactStoreProps as ArtifactStoreProps
from roundhouse_cdk.artifact_store import EngineImages as EngineImages
from roundhouse_cdk.artifact_store import EngineImagesProps as EngineImagesProps
from roundhouse_cdk.artifact_store import SlackAlarms as SlackAlarms
from roundhouse_cdk.artifact_store import SlackAlarmsProps as SlackAlarmsProps
from roundhouse_cdk.build_project import ImageBuilds as ImageBuilds
from roundhouse_cdk.build_project import ImageBuildsProps as ImageBuildsProps
from roundhouse_cdk.component_endpoint import ComponentEndpoint as ComponentEndpoint
from roundhouse_cdk.component_endpoint import ComponentEndpointProps as ComponentEndpointProps
from roundhouse_cdk.component_endpoint import ComponentProps as ComponentProps
from roundhouse_cdk.component_endpoint import TextGenerationEndpoint as TextGenerationEndpoint
from roundhouse_cdk.component_endpoint import (
    TextGenerationEndpointProps as TextGenerationEndpointProps,
)
from roundhouse_cdk.endpoint_dashboard import EndpointDashboard as EndpointDashboard
from roundhouse_cdk.endpoint_dashboard import EndpointDashboardProps as EndpointDashboardProps
from roundhouse_cdk.endpoint_metrics import EndpointAlarms as EndpointAlarms
from roundhouse_cdk.endpoint_metrics import EndpointAlarmsProps as EndpointAlarmsProps
from roundhouse_cdk.endpoint_metrics import EndpointScaling as EndpointScaling
from roundhouse_cdk.endpoint_metrics import EndpointScalingProps as EndpointScalingProps
from roundhouse_cdk.engine_pipeline import BuildPrograms as BuildPrograms
from roundhouse_cdk.engine_pipeline import EnginePipeline as EnginePipeline
from roundhouse_cdk.engine_pipeline import EnginePipelineProps as EnginePipelineProps
from roundhouse_cdk.hosting import ContainerProps as ContainerProps
from roundhouse_cdk.hosting import RolloutProps as RolloutProps
from roundhouse_cdk.pipeline_roles import PipelineRoles as PipelineRoles
from roundhouse_cdk.pipeline_roles import PipelineRolesProps as PipelineRolesProps
from roundhouse_cdk.realtime_endpoint import MultiModelEndpoint as MultiModelEndpoint
from roundhouse_cdk.realtime_endpoint import PoolProps as PoolProps
from roundhouse_cdk.realtime_endpoint import RealtimeEndpoint as RealtimeEndpoint
from roundhouse_cdk.realtime_endpoint import RealtimeEndpointProps as RealtimeEndpointProps
from roundhouse_cdk.realtime_endpoint import VariantProps as VariantProps
from roundhouse_cdk.vpc_endpoints import VpcEndpoints as VpcEndpoints
from roundhouse_cdk.vpc_endpoints import VpcEndpointsProps as VpcEndpointsProps
