"""The private names of MiniStack that the local cloud uses; a missing one is refused at start."""

from __future__ import annotations

import importlib
import importlib.metadata

VERSION = "1.5.33"
NAMES = {
    "core.router": "SERVICE_PATTERNS",
    "core.iam_actions": (
        "s3_service_context request_tag_context extract_iam_action extract_resource_arn"
    ),
    "core.responses": (
        "AccountRegionScopedDict error_response_json get_account_id get_region request_scope "
        "set_request_account_id set_request_region StreamingResponse"
    ),
    "core.iam_evaluator": ("pin_request_origin _resolve_condition_key caller_arn"),
    "app": "SERVICE_HANDLERS SERVICE_REGISTRY app pin_request_origin AUTH",
    "services.s3": (
        "_get_object_data _put_object _buckets _ensure_bucket _copy_object "
        "_check_put_preconditions _bucket_owner_account"
    ),
    "services.ecr": "_describe_images _find_image _registry_id _repositories",
    "services.iam": "_oidc_providers _roles _now",
    "services.sts": (
        "_web_identity_trust_denied _web_identity_principal _p _error error_response_json"
    ),
    "services.sns": "publish_internal",
    "services.kms": "_resolve_key _aliases",
    "services.cloudwatch": (
        "record_metric _metrics _metric_bucket _dims_key _calc_stats _stat_value "
        "_is_percentile_stat _alarms _composite_alarms _evaluate_alarm "
        "_evaluate_all_alarms _evaluate_parent_alarms _record_history _dispatch_alarm_actions "
        "_list_metrics _get_metric_statistics _get_metric_data _put_metric_alarm "
        "cloudformation_put_metric_alarm cloudformation_delete_metric_alarm"
    ),
    "services.cloudwatch_logs": "_create_log_group _create_log_stream _put_log_events",
    "services.stepfunctions": (
        "_AWS_SDK_SERVICE_MAP _AWS_SDK_ERROR_PREFIX _AWS_SDK_ERROR_CODE_OVERRIDES _execute_task "
        "_executions _fail_execution _run_distributed_map _ExecutionError"
    ),
    "services.codebuild": "_projects _builds _start_build _stop_build _build_id _make_build_record",
    "services.cloudformation.stacks": "_runs_on_worker_thread",
    "services.cloudformation.provisioners": (
        "_RESOURCE_HANDLERS _REPLACING_PROPERTIES _CUSTOM_NAME_REPLACEMENT _physical_name "
        "_cw_metric_alarm_record _STACK_TAG_PROPERTY"
    ),
}
"""Names by module of MiniStack."""


class HookError(Exception):
    """MiniStack is not the version that the local cloud needs."""


def check_hooks() -> None:
    """Refuse a MiniStack of another version or without a private name used here."""
    found = importlib.metadata.version("ministack")
    if found != VERSION:
        raise HookError(
            f"the local cloud hangs on private names of ministack {VERSION}, found {found}: "
            f"install {VERSION}"
        )
    missing = [
        f"ministack.{module}:{name}"
        for module, names in NAMES.items()
        for name in names.split()
        if not _exists(f"ministack.{module}", name)
    ]
    if missing:
        raise HookError(
            f"ministack {found} lacks {', '.join(missing)}, which the local cloud hangs on: "
            f"install {VERSION} anew"
        )


def _exists(module: str, name: str) -> bool:
    try:
        return hasattr(importlib.import_module(module), name)
    except ImportError:
        return False
