"""Rules of a text generator's lengths, SLO, arguments, variables, copies, routing and start."""

from __future__ import annotations

import re
from collections.abc import Iterator

from onboarding.aws_limits import REAL_TIME_SECONDS
from onboarding.fault import Fault, comma_list, did_you_mean
from onboarding.rules.cases import GenerationCase
from onboarding.text_generation.arguments import (
    PARALLEL,
    PLANNED,
    RESERVED_PREFIXES,
    RESERVED_VARIABLES,
    ROUTED,
)
from onboarding.text_generation.gpu_memory import GIB
from onboarding.text_generation.platforms import (
    argument_flags,
    generation_platforms,
    known_arguments,
    versions_with,
    versions_with_flags,
)

VARIABLE = re.compile("[a-zA-Z_][a-zA-Z0-9_]*")
"""Names of environment variables. Source: SageMaker API, EnvironmentMap."""
WHOLE_ANSWER_SECONDS = REAL_TIME_SECONDS - 5
"""A whole answer must be there by then: a real-time endpoint gives a request up after 60 s."""
LOAD_SECONDS_A_GIB, COMPILE_SECONDS = 1.0, 60.0
"""Assumed of a start: an 8B shape took 80 s on an H200, a 70B shape on two 113 s."""
SAFETY = 2.0
_ARGUMENTS = "serving.arguments"


def lengths_fit_the_model(case: GenerationCase) -> Iterator[Fault]:
    """Prompt and answer share max_model_len, and a mean lies below its 95th percentile."""
    context = case.spec.context
    total = context.prompt_p95 + context.output_p95
    if total > context.max_model_len:
        yield case.file.at("context.max_model_len").fault(
            f"prompt_p95 and output_p95 are {total} tokens together, above 'context.max_model_len'",
            value=context.max_model_len,
            allowed=f"{total} or more",
            way_out="raise max_model_len, or declare shorter prompts or answers",
        )
    for kind in ("prompt", "output"):
        mean, most = getattr(context, f"{kind}_mean"), getattr(context, f"{kind}_p95")
        if mean is not None and mean > most:
            yield case.file.fault(
                f"context.{kind}_mean",
                f"is above '{kind}_p95'",
                allowed=f"at most {most}",
                way_out="lower it, or raise the 95th percentile",
            )


def whole_answers_come_within_a_minute(case: GenerationCase) -> Iterator[Fault]:
    """SageMaker gives a request up after 60 s; a stream is not held to it."""
    slo, context = case.spec.slo, case.spec.context
    seconds = (context.output_p95 * slo.itl_p95_ms + slo.ttft_p95_ms) / 1000
    if not slo.streaming and seconds >= WHOLE_ANSWER_SECONDS:
        yield case.file.at("slo.streaming").fault(
            f"an answer of {context.output_p95} tokens may take {seconds:.0f} s at this SLO, and "
            f"SageMaker gives a request up after {REAL_TIME_SECONDS} s",
            value="false",
            allowed=f"less than {WHOLE_ANSWER_SECONDS} s, or streaming: true",
            way_out="stream, or lower output_p95 or itl_p95_ms",
        )


def generation_platform_is_known(case: GenerationCase) -> Iterator[Fault]:
    """A platform has a row, which says its engine's version."""
    if case.platform is None:
        yield case.file.at("serving.platform").unknown(
            "'serving.platform' has no row in generation_platforms.yaml",
            case.spec.serving.platform,
            generation_platforms(),
            "choose one of these",
        )


def variables_are_not_the_plans(case: GenerationCase) -> Iterator[Fault]:
    """Variables that configure the engine come from the plan alone."""
    for name in case.spec.serving.environment:
        place = case.file.at(("serving", "environment", name))
        if name == "VLLM_ALLOW_LONG_MAX_MODEL_LEN":
            yield place.fault(
                f"'{name}' lets a model answer beyond the positions it was trained for",
                way_out="take it out, and lower context.max_model_len",
            )
        elif VARIABLE.fullmatch(name) is None:
            yield place.fault(
                f"'serving.environment.{name}' is no name that a model's template takes",
                allowed="letters, digits and _, no digit first",
                way_out="take it out, or rename it",
            )
        elif name in RESERVED_VARIABLES or name.startswith(RESERVED_PREFIXES):
            yield place.fault(
                f"'serving.environment.{name}' is set by the plan",
                way_out="take it out; engine arguments go to serving.arguments",
            )


def sizes_are_divisible(case: GenerationCase) -> Iterator[Fault]:
    """Each GPU takes as many heads and as wide a part of each layer as the others."""
    size = case.spec.serving.tensor_parallel
    if size == "auto" or case.headers is None:
        return
    for key, title in (
        ("num_attention_heads", "attention heads"),
        ("intermediate_size", "columns of its feed-forward layers"),
    ):
        number = case.headers.text_config.get(key)
        if isinstance(number, int) and number % size:
            yield case.file.at("serving.tensor_parallel").fault(
                f"the model has {number} {title}, which tensor_parallel {size} does not divide",
                allowed=", ".join(str(count) for count in (1, 2, 4, 8) if number % count == 0),
                way_out="choose one of these, or auto",
            )


def arguments_are_the_engines(case: GenerationCase) -> Iterator[Fault]:
    """The server exits at once for a flag that its version does not know."""
    serving, version = case.spec.serving, case.engine_version
    known = None if version is None else known_arguments(version)
    for name, value in serving.arguments.items():
        place, flag = case.file.at((*_ARGUMENTS.split("."), name)), name.replace("_", "-")
        if name in ("quantization", "quantization_config"):
            yield place.fault(
                f"'{_ARGUMENTS}.quantization' would quantize while the server starts, without a "
                "check of accuracy",
                way_out="name the format in quantization.schemes",
            )
        elif name in PLANNED or name in ROUTED:
            way_out = f"use {PLANNED[name]}" if name in PLANNED else "take it out"
            yield place.fault(f"'{_ARGUMENTS}.{name}' is set by the plan", way_out=way_out)
        elif name in PARALLEL:
            yield place.fault(
                f"'{_ARGUMENTS}.{name}' spreads one copy over GPUs in a way that the plan does not "
                "count",
                value=name,
                way_out="take it out; use serving.tensor_parallel, and endpoint.copies",
            )
        elif known is not None and name not in known:
            since = versions_with(name)
            yield place.fault(
                f"vLLM {version} has no argument --{flag}",
                value=name,
                allowed=f"versions that have it: {', '.join(since)}" if since else None,
                way_out=f"choose a platform with vLLM {since[-1]}, or take it out"
                if since
                else did_you_mean(name, known, "take it out"),
            )
        if value is False and version is not None and not argument_flags(version):
            # The image leaves out what is false.
            yield place.fault(
                f"how vLLM {version} turns --{flag} off is not known, and the image would leave it "
                "as it is",
                value="false",
                allowed="true",
                way_out="take it out, or choose a platform with vLLM "
                f"{comma_list(versions_with_flags())}",
            )
        if name == "api_server_count" and value != 1 and serving.adapters:
            yield place.fault(
                "'api_server_count' above 1 has no adapters that are loaded while vLLM runs, as "
                "SageMaker does",
                value=value,
                allowed="1",
                way_out="take it out",
            )
    queued = "max_num_queued_reqs"
    if serving.max_num_queued_reqs is not None and known and queued not in known:
        yield case.file.at(f"serving.{queued}").fault(
            f"vLLM {version} has no bound of its queue",
            allowed=f"vLLM {', '.join(versions_with(queued))}",
            way_out="choose a platform of that version, or take it out: the queue is unbounded "
            "there",
        )


def copies_start_in_time(case: GenerationCase) -> Iterator[Fault]:
    """An endpoint that is given up while it loads was paid for and answers nothing."""
    endpoint = case.spec.endpoint
    if endpoint.copies.min > endpoint.copies.max:
        yield case.file.fault(
            "endpoint.copies.min",
            "is above 'endpoint.copies.max'",
            allowed=f"at most {endpoint.copies.max}",
            way_out="lower min, or raise max",
        )
    if case.headers is None:
        return
    size = case.headers.bytes / GIB
    seconds = SAFETY * (size * LOAD_SECONDS_A_GIB + COMPILE_SECONDS)
    if endpoint.start_up_seconds < seconds:
        yield case.file.fault(
            "endpoint.start_up_seconds",
            f"is less than twice what a checkpoint of {size:.1f} GiB is expected to take",
            allowed=f"{seconds:.0f} or more",
            way_out="raise it, or serve a smaller checkpoint",
        )


RULES = (
    lengths_fit_the_model,
    whole_answers_come_within_a_minute,
    generation_platform_is_known,
    variables_are_not_the_plans,
    sizes_are_divisible,
    arguments_are_the_engines,
    copies_start_in_time,
)
