"""Constructs that build and serve TensorRT engines on AWS, each with a frozen props class."""

from roundhouse_cdk.artifact_store import ArtifactStore as ArtifactStore
from roundhouse_cdk.artifact_store import ArtifactStoreProps as ArtifactStoreProps
from roundhouse_cdk.engine_images import EngineImages as EngineImages
from roundhouse_cdk.engine_images import EngineImagesProps as EngineImagesProps
from roundhouse_cdk.engine_images import ImageBuilds as ImageBuilds
from roundhouse_cdk.engine_images import ImageBuildsProps as ImageBuildsProps
from roundhouse_cdk.engine_pipeline import BuildPrograms as BuildPrograms
from roundhouse_cdk.engine_pipeline import EnginePipeline as EnginePipeline
from roundhouse_cdk.engine_pipeline import EnginePipelineProps as EnginePipelineProps
from roundhouse_cdk.pipeline_roles import PipelineRoles as PipelineRoles
from roundhouse_cdk.pipeline_roles import PipelineRolesProps as PipelineRolesProps
from roundhouse_cdk.slack_alarms import SlackAlarms as SlackAlarms
from roundhouse_cdk.slack_alarms import SlackAlarmsProps as SlackAlarmsProps
from roundhouse_cdk.vpc_endpoints import VpcEndpoints as VpcEndpoints
from roundhouse_cdk.vpc_endpoints import VpcEndpointsProps as VpcEndpointsProps
