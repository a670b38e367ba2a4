"""The private names of MiniStack that the local cloud uses; a missing one is refused at start."""

from __future__ import annotations

import importlib
import importlib.metadata
from collections.abc import Sequence

VERSION = "1.5.33"
NAMES = (
    "ministack.core.router:SERVICE_PATTERNS",
    "ministack.core.responses:AccountRegionScopedDict",
    "ministack.core.responses:get_account_id",
    "ministack.core.responses:get_region",
    "ministack.core.responses:request_scope",
    "ministack.app:SERVICE_HANDLERS",
    "ministack.app:SERVICE_REGISTRY",
    "ministack.app:app",
    "ministack.services.s3:_get_object_data",
    "ministack.services.s3:_put_object",
    "ministack.services.sns:publish_internal",
    "ministack.services.cloudwatch:record_metric",
    "ministack.services.cloudwatch:_metrics",
    "ministack.services.cloudwatch:_metric_bucket",
    "ministack.services.cloudwatch:_dims_key",
    "ministack.services.cloudwatch:_calc_stats",
    "ministack.services.cloudwatch:_stat_value",
    "ministack.services.cloudwatch:_is_percentile_stat",
    "ministack.services.cloudwatch:_parse_ts",
    "ministack.services.cloudwatch:_alarms",
    "ministack.services.cloudwatch:_composite_alarms",
    "ministack.services.cloudwatch:_evaluate_alarm",
    "ministack.services.cloudwatch:_evaluate_all_alarms",
    "ministack.services.cloudwatch:_evaluate_parent_alarms",
    "ministack.services.cloudwatch:_record_history",
    "ministack.services.cloudwatch:_dispatch_alarm_actions",
    "ministack.services.cloudwatch:_list_metrics",
    "ministack.services.cloudwatch:_get_metric_statistics",
    "ministack.services.cloudwatch:_get_metric_data",
    "ministack.services.cloudwatch:_put_metric_alarm",
    "ministack.services.cloudwatch:_cbor_ok",
    "ministack.services.cloudwatch:_cbor_metric_data_result",
    "ministack.services.cloudwatch:_json_ok",
    "ministack.services.cloudwatch:_error",
    "ministack.services.cloudwatch:cloudformation_put_metric_alarm",
    "ministack.services.cloudwatch:cloudformation_delete_metric_alarm",
    "ministack.services.s3:_buckets",
    "ministack.services.cloudwatch_logs:_create_log_group",
    "ministack.services.cloudwatch_logs:_create_log_stream",
    "ministack.services.cloudwatch_logs:_put_log_events",
    "ministack.services.stepfunctions:_AWS_SDK_SERVICE_MAP",
    "ministack.services.stepfunctions:_AWS_SDK_ERROR_PREFIX",
    "ministack.services.stepfunctions:_AWS_SDK_ERROR_CODE_OVERRIDES",
    "ministack.services.stepfunctions:_execute_task",
    "ministack.services.stepfunctions:_executions",
    "ministack.services.stepfunctions:_fail_execution",
    "ministack.services.stepfunctions:_run_distributed_map",
    "ministack.services.stepfunctions:_ExecutionError",
    "ministack.services.codebuild:_projects",
    "ministack.services.codebuild:_builds",
    "ministack.services.codebuild:_start_build",
    "ministack.services.codebuild:_stop_build",
    "ministack.services.codebuild:_build_id",
    "ministack.services.codebuild:_make_build_record",
    "ministack.services.cloudformation.stacks:_runs_on_worker_thread",
    "ministack.services.cloudformation.provisioners:_RESOURCE_HANDLERS",
    "ministack.services.cloudformation.provisioners:_REPLACING_PROPERTIES",
    "ministack.services.cloudformation.provisioners:_CUSTOM_NAME_REPLACEMENT",
    "ministack.services.cloudformation.provisioners:_physical_name",
    "ministack.services.cloudformation.provisioners:_cw_metric_alarm_record",
)


class HookError(Exception):
    """MiniStack is not the version that the local cloud needs."""


def check_hooks(names: Sequence[str] = NAMES, version: str = VERSION) -> None:
    """Refuses a MiniStack of another version or without a private name used here."""
    found = importlib.metadata.version("ministack")
    if found != version:
        raise HookError(
            f"the local cloud hangs on private names of ministack {version}, found {found}: "
            f"install {version}"
        )
    missing = [name for name in names if not _exists(name)]
    if missing:
        raise HookError(
            f"ministack {found} lacks {', '.join(missing)}, which the local cloud hangs on: "
            f"install {version} anew"
        )


def _exists(name: str) -> bool:
    module, _, attribute = name.partition(":")
    try:
        return hasattr(importlib.import_module(module), attribute)
    except ImportError:
        return False
