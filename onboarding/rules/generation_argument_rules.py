"""Rules of the engine's arguments: known to its version, of values that it takes."""

from __future__ import annotations

from collections.abc import Iterator

from onboarding.fault import Fault
from onboarding.nearest import comma_list, did_you_mean
from onboarding.rules.generation_case import GenerationCase
from onboarding.rules.rule import rule, rules_of
from onboarding.text_generation.arguments import PARALLEL, PLANNED, ROUTED
from onboarding.text_generation.kv_cache import MTP_KEYS
from onboarding.text_generation.platforms import (
    argument_values,
    known_arguments,
    versions_with,
    versions_with_values,
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
def argument_values_are_the_engines(case: GenerationCase) -> Iterator[Fault]:
    """The server's parser exits for a value that it does not take, or takes it for another's."""
    values = argument_values(case.engine_version)
    for name, value in case.spec.serving.arguments.items():
        is_flag, is_number = isinstance(value, bool), type(value) in (int, float)
        allowed = None
        if name in values.flags and not is_flag:
            allowed = "true or false"
        elif name in values.integers and type(value) is not int:
            allowed = "a whole number"
        elif name in values.numbers and not is_number:
            allowed = "a number"
        elif name in values.choices and str(value) not in values.choices[name]:
            allowed = comma_list(values.choices[name])
        if value is False and not values.flags and case.engine_version is not None:
            yield case.document.at("serving", "arguments", name).fault(
                f"how vLLM {case.engine_version} turns --{_dashed(name)} off is not known, and the "
                "image would leave it as it is",
                value="false",
                allowed="true",
                way_out="take it out, or choose a platform with vLLM "
                f"{comma_list(versions_with_values())}",
            )
        elif allowed is not None:
            yield case.document.at("serving", "arguments", name).fault(
                f"vLLM {case.engine_version} does not take this value of --{_dashed(name)}",
                value=value,
                allowed=allowed,
                way_out="choose one of these, or take it out",
            )


@rule("serving", "context", "source")
def arguments_go_together(case: GenerationCase) -> Iterator[Fault]:
    """VLLM builds no configuration of arguments that contradict each other."""
    serving = case.spec.serving
    given = serving.arguments
    tokens, sequences = serving.max_num_batched_tokens, serving.max_num_seqs
    if tokens is not None and sequences is not None and tokens < sequences:
        yield case.document.at("serving", "max_num_batched_tokens").fault(
            "'serving.max_num_batched_tokens' is below 'max_num_seqs', and each sequence has a "
            "token in a step",
            value=tokens,
            allowed=f"{sequences} or more",
            way_out="raise it, or lower max_num_seqs",
        )
    kept = given.get("max_cpu_loras")
    if type(kept) is int and kept < len(serving.adapters):
        yield case.document.at("serving", "arguments", "max_cpu_loras").fault(
            f"'max_cpu_loras' is below the {len(serving.adapters)} adapters",
            value=kept,
            allowed=f"{len(serving.adapters)} or more",
            way_out="raise it, or take it out",
        )
    servers = given.get("api_server_count")
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
    if given.get("enable_auto_tool_choice") is True and not given.get("tool_call_parser"):
        yield case.document.at("serving", "arguments", "enable_auto_tool_choice").fault(
            "enable_auto_tool_choice needs a tool_call_parser",
            way_out="add `tool_call_parser:`, by the name that vLLM has for the model",
        )
    threshold = given.get("long_prefill_token_threshold")
    if type(threshold) is int and threshold > case.spec.context.max_model_len:
        yield case.document.at("serving", "arguments", "long_prefill_token_threshold").fault(
            "'long_prefill_token_threshold' is above 'context.max_model_len'",
            value=threshold,
            allowed=f"at most {case.spec.context.max_model_len}",
            way_out="lower it, or take it out",
        )
    guess = serving.speculative
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


def _dashed(name: str) -> str:
    return name.replace("_", "-")


RULES = rules_of(globals())
