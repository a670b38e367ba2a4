"""Rules of a text generator's lengths, SLO, arguments, variables, copies, routing and start."""

from __future__ import annotations

import re
from collections.abc import Iterator

from onboarding.aws_limits import (
    ENVIRONMENT_BYTES,
    ENVIRONMENT_VALUE_LENGTH,
    ENVIRONMENT_VARIABLE_COUNT,
    REAL_TIME_SECONDS,
)
from onboarding.fault import Fault
from onboarding.nearest import comma_list, did_you_mean
from onboarding.rules.generation_case import GenerationCase
from onboarding.rules.rule import rule
from onboarding.text_generation.arguments import (
    PARALLEL,
    PLANNED,
    RESERVED_PREFIXES,
    RESERVED_VARIABLES,
    ROUTED,
    VLLM_PREFIX,
    container_environment,
)
from onboarding.text_generation.kv_cache import MTP_KEYS
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


@rule("context")
def lengths_fit_the_model(case: GenerationCase) -> Iterator[Fault]:
    """Prompt and answer share max_model_len, and a mean lies below its 95th percentile."""
    context = case.spec.context
    total = context.prompt_p95 + context.output_p95
    if total > context.max_model_len:
        yield case.document.at("context", "max_model_len").fault(
            f"prompt_p95 and output_p95 are {total} tokens together, above 'context.max_model_len'",
            value=context.max_model_len,
            allowed=f"{total} or more",
            way_out="raise max_model_len, or declare shorter prompts or answers",
        )
    for kind in ("prompt", "output"):
        mean, most = getattr(context, f"{kind}_mean"), getattr(context, f"{kind}_p95")
        if mean is not None and mean > most:
            yield case.document.at("context", f"{kind}_mean").fault(
                f"'context.{kind}_mean' is above '{kind}_p95'",
                value=mean,
                allowed=f"at most {most}",
                way_out="lower it, or raise the 95th percentile",
            )


@rule("context", "slo")
def whole_answers_come_within_a_minute(case: GenerationCase) -> Iterator[Fault]:
    """SageMaker gives a request up after 60 s; a stream is not held to it."""
    slo, context = case.spec.slo, case.spec.context
    seconds = (context.output_p95 * slo.itl_p95_ms + slo.ttft_p95_ms) / 1000
    if not slo.streaming and seconds >= WHOLE_ANSWER_SECONDS:
        yield case.document.at("slo", "streaming").fault(
            f"an answer of {context.output_p95} tokens may take {seconds:.0f} s at this SLO, and "
            f"SageMaker gives a request up after {REAL_TIME_SECONDS} s",
            value="false",
            allowed=f"less than {WHOLE_ANSWER_SECONDS} s, or streaming: true",
            way_out="stream, or lower output_p95 or itl_p95_ms",
        )


@rule("serving")
def generation_platform_is_known(case: GenerationCase) -> Iterator[Fault]:
    """A platform has a row, and its engine's version is known from it or from the file."""
    serving, row = case.spec.serving, case.platform
    if row is None:
        names = tuple(generation_platforms())
        yield case.document.at("serving", "platform").unknown(
            "'serving.platform' has no row in generation_platforms.yaml",
            serving.platform,
            names,
            "choose one of these",
        )
    elif row.is_lmi:
        yield case.document.at("serving", "platform").fault(
            f"{row.image} is an LMI image, which our server cannot stand before: it has another "
            "entry point, other variables, and its own request schema beside OpenAI's",
            value=serving.platform,
            allowed=comma_list(
                [name for name, other in generation_platforms().items() if not other.is_lmi]
            ),
            way_out="choose one of these: vLLM, the engine inside LMI, in AWS's own image",
        )
    elif row.engine_version is None and serving.engine_version is None:
        yield case.document.at("serving", "platform").fault(
            f"which vLLM {row.image} carries is not known",
            value=serving.platform,
            way_out="add `engine_version:` as the image's changelog says, or choose another row",
        )
    elif row.engine_version is not None and serving.engine_version not in (
        None,
        row.engine_version,
    ):
        yield case.document.at("serving", "engine_version").fault(
            f"'serving.engine_version' is not that of {row.image}",
            value=serving.engine_version,
            allowed=row.engine_version,
            way_out="take the line out",
        )


@rule("serving")
def variables_are_not_the_plans(case: GenerationCase) -> Iterator[Fault]:
    """Variables that configure the engine come from the plan alone."""
    for name in case.spec.serving.environment:
        place = case.document.at("serving", "environment", name)
        if name == "VLLM_ALLOW_LONG_MAX_MODEL_LEN":
            yield place.fault(
                f"'{name}' lets a model answer beyond the positions it was trained for",
                way_out="take it out, and lower context.max_model_len",
            )
        elif name == "Ref" or VARIABLE.fullmatch(name) is None:
            yield place.fault(
                f"'serving.environment.{name}' is no name that a model's template takes",
                allowed="letters, digits and _, no digit first, and not Ref",
                way_out="take it out, or rename it",
            )
        elif name in RESERVED_VARIABLES or name.startswith(RESERVED_PREFIXES):
            yield place.fault(
                f"'serving.environment.{name}' is set by the plan",
                way_out="take it out; engine arguments go to serving.arguments",
            )


@rule("name", "source", "context", "quantization", "serving")
def environment_is_within_sagemakers_limits(case: GenerationCase) -> Iterator[Fault]:
    """CreateModel refuses a larger environment; the engine's arguments are part of it."""
    if case.platform is None:
        return
    given = case.spec.serving
    size = given.tensor_parallel if given.tensor_parallel != "auto" else 1
    values = container_environment(case.spec, size, case.engine_version)
    place = case.document.at("serving")
    for name, value in values.items():
        longest = max(len(name.encode()), len(value.encode()))
        if longest > ENVIRONMENT_VALUE_LENGTH:
            argument = name.removeprefix(VLLM_PREFIX).lower()
            own = ("arguments", argument) if argument in given.arguments else ("environment", name)
            yield case.document.at("serving", *own).fault(
                f"environment variable {name} has {longest} bytes",
                allowed=f"at most {ENVIRONMENT_VALUE_LENGTH}",
                way_out="put the text into a file of the checkpoint, and name its path under "
                "/opt/ml/model",
            )
    if len(values) > ENVIRONMENT_VARIABLE_COUNT:
        yield place.fault(
            f"the container would have {len(values)} environment variables",
            allowed=f"at most {ENVIRONMENT_VARIABLE_COUNT}",
            way_out="take some out of serving.environment or serving.arguments",
        )
    total = sum(len(name.encode()) + len(value.encode()) for name, value in values.items())
    if total > ENVIRONMENT_BYTES:
        yield place.fault(
            f"the container's environment would have {total} bytes",
            allowed=f"at most {ENVIRONMENT_BYTES}",
            way_out="put long texts into files of the checkpoint, and name their paths",
        )


@rule("serving", "source")
def sizes_are_divisible(case: GenerationCase) -> Iterator[Fault]:
    """Each GPU takes as many heads and as wide a part of each layer as the others."""
    size = case.spec.serving.tensor_parallel
    if size == "auto" or case.headers is None:
        return
    config = case.headers.text_config
    place = case.document.at("serving", "tensor_parallel")
    for key, title in (
        ("num_attention_heads", "attention heads"),
        ("intermediate_size", "columns of its feed-forward layers"),
    ):
        number = config.get(key)
        if isinstance(number, int) and number % size:
            fitting = [count for count in (1, 2, 4, 8) if number % count == 0]
            yield place.fault(
                f"the model has {number} {title}, which tensor_parallel {size} does not divide",
                allowed=", ".join(map(str, fitting)),
                way_out="choose one of these, or auto",
            )


@rule("serving", "source", "context", "quantization")
def arguments_are_the_engines(case: GenerationCase) -> Iterator[Fault]:
    """The server exits at once for a flag that its version does not know."""
    version = case.engine_version
    known = None if version is None else known_arguments(version)
    for name in case.spec.serving.arguments:
        place = case.document.at("serving", "arguments", name)
        if name in ("quantization", "quantization_config"):
            yield place.fault(
                "'serving.arguments.quantization' would quantize while the server starts, without "
                "a check of accuracy",
                way_out="name the format in quantization.schemes",
            )
        elif name in PLANNED or name in ROUTED:
            way_out = f"use {PLANNED[name]}" if name in PLANNED else "take it out"
            yield place.fault(f"'serving.arguments.{name}' is set by the plan", way_out=way_out)
        elif name in PARALLEL:
            yield place.fault(
                f"'serving.arguments.{name}' spreads one copy over GPUs in a way that the plan "
                "does not count",
                value=name,
                way_out="take it out; use serving.tensor_parallel, and endpoint.copies",
            )
        elif known is not None and name not in known:
            since = versions_with(name)
            yield place.fault(
                f"vLLM {version} has no argument --{name.replace('_', '-')}",
                value=name,
                allowed=f"versions that have it: {', '.join(since)}" if since else None,
                way_out=f"choose a platform with vLLM {since[-1]}, or take it out"
                if since
                else did_you_mean(name, known, "take it out"),
            )
    queued = "max_num_queued_reqs"
    if case.spec.serving.max_num_queued_reqs is not None and known and queued not in known:
        yield case.document.at("serving", queued).fault(
            f"vLLM {version} has no bound of its queue",
            allowed=f"vLLM {', '.join(versions_with(queued))}",
            way_out="choose a platform of that version, or take it out: the queue is unbounded "
            "there",
        )


@rule("serving")
def flags_can_be_turned_off(case: GenerationCase) -> Iterator[Fault]:
    """The image leaves out what is false, and --no-x is known of some versions alone."""
    version = case.engine_version
    if version is None or argument_flags(version):
        return
    for name, value in case.spec.serving.arguments.items():
        if value is False:
            yield case.document.at("serving", "arguments", name).fault(
                f"how vLLM {version} turns --{name.replace('_', '-')} off is not known, and the "
                "image would leave it as it is",
                value="false",
                allowed="true",
                way_out="take it out, or choose a platform with vLLM "
                f"{comma_list(versions_with_flags())}",
            )


@rule("serving")
def one_server_answers(case: GenerationCase) -> Iterator[Fault]:
    """Without a server nothing answers; of several, one alone would load an adapter."""
    serving = case.spec.serving
    servers = serving.arguments.get("api_server_count")
    if type(servers) is int and (servers < 1 or (servers > 1 and serving.adapters)):
        yield case.document.at("serving", "arguments", "api_server_count").fault(
            "'api_server_count' above 1 has no adapters that are loaded while vLLM runs, as "
            "SageMaker does"
            if servers > 1
            else "'api_server_count' below 1 starts vLLM without a server",
            value=servers,
            allowed="1",
            way_out="take it out",
        )


@rule("serving", "source")
def guesses_have_their_layers(case: GenerationCase) -> Iterator[Fault]:
    """Method mtp guesses with layers that the checkpoint must have."""
    guess = case.spec.serving.speculative
    if guess is not None and guess.method == "mtp" and _guesses_nothing(case):
        yield case.document.at("serving", "speculative").fault(
            "speculative method mtp needs a checkpoint with layers that guess tokens",
            value="mtp",
            allowed=f"one whose config.json has {comma_list(MTP_KEYS)}",
            way_out="choose ngram, which needs none",
        )


def _guesses_nothing(case: GenerationCase) -> bool:
    if case.headers is None:
        return False
    config = case.headers.text_config
    has_layers = any("mtp" in name or "nextn" in name for name in case.headers.tensors)
    return not has_layers and not any(config.get(key) for key in MTP_KEYS)


LOAD_SECONDS_A_GIB, COMPILE_SECONDS = 1.0, 60.0
"""Assumed of a start: an 8B shape took 80 s on an H200, a 70B shape on two 113 s."""
SAFETY = 2.0
GIB = 1 << 30


@rule("endpoint")
def copies_are_possible(case: GenerationCase) -> Iterator[Fault]:
    """Fewest and most agree."""
    copies = case.spec.endpoint.copies
    if copies.min > copies.max:
        yield case.document.at("endpoint", "copies", "min").fault(
            "'endpoint.copies.min' is above 'endpoint.copies.max'",
            value=copies.min,
            allowed=f"at most {copies.max}",
            way_out="lower min, or raise max",
        )


@rule("source", "endpoint")
def time_to_start_is_enough(case: GenerationCase) -> Iterator[Fault]:
    """An endpoint that is given up while it loads was paid for and answers nothing."""
    if case.headers is None:
        return
    given, size = case.spec.endpoint.start_up_seconds, case.headers.bytes / GIB
    seconds = SAFETY * (size * LOAD_SECONDS_A_GIB + COMPILE_SECONDS)
    if given < seconds:
        yield case.document.at("endpoint", "start_up_seconds").fault(
            "'endpoint.start_up_seconds' is less than twice what a checkpoint of "
            f"{size:.1f} GiB is expected to take",
            value=given,
            allowed=f"{seconds:.0f} or more",
            way_out="raise it, or serve a smaller checkpoint",
        )
