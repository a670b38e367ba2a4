"""Rules of a text generator's lengths, SLO, arguments and environment variables."""

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
from onboarding.rules.rule import rule, rules_of
from onboarding.rules.source_pins import REPOSITORY
from onboarding.text_generation.arguments import (
    RESERVED_PREFIXES,
    RESERVED_VARIABLES,
    VLLM_PREFIX,
    container_environment,
)
from onboarding.text_generation.checkpoint import Checkpoint, CheckpointError
from onboarding.text_generation.kv_cache import ArchitectureError, cache_layers
from onboarding.text_generation.platforms import (
    generation_platforms,
)

VARIABLE = re.compile("[a-zA-Z_][a-zA-Z0-9_]*")
"""Names of environment variables. Source: SageMaker API, EnvironmentMap."""
WHOLE_ANSWER_SECONDS = REAL_TIME_SECONDS - 5
"""A whole answer must be there by then: a real-time endpoint gives a request up after 60 s."""
DRAFTED = ("eagle", "eagle3", "draft-model", "medusa")


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
        yield case.document.at("serving", "platform").fault(
            "'serving.platform' has no row in generation_platforms.yaml",
            value=serving.platform,
            allowed=comma_list(names),
            way_out=did_you_mean(serving.platform, names, "choose one of these"),
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


@rule("serving")
def guesses_have_their_model(case: GenerationCase) -> Iterator[Fault]:
    """Some ways of guessing need a draft model, which is pinned; others take none."""
    guess = case.spec.serving.speculative
    if guess is None:
        return
    place = case.document.at("serving", "speculative")
    if guess.method in DRAFTED and guess.model is None:
        yield place.fault(
            f"speculative method {guess.method} needs a draft model",
            way_out="add `model: owner/name@<commit>`, or choose ngram",
        )
    elif guess.method not in DRAFTED and guess.model is not None:
        yield place.fault(
            f"speculative method {guess.method} takes no draft model",
            value=guess.model,
            way_out="take `model:` out",
        )
    elif guess.model is not None and not REPOSITORY.fullmatch(guess.model):
        yield place.fault(
            "unpinned source: 'serving.speculative.model' has no full commit",
            value=guess.model,
            allowed="owner/name@<40 hex digits>",
            way_out="add @<commit>",
        )


@rule("serving")
def guesses_can_be_counted(case: GenerationCase) -> Iterator[Fault]:
    """The draft model's headers can be read; but Medusa's, its layers cache keys and values."""
    guess = case.spec.serving.speculative
    problem = case.draft if isinstance(case.draft, CheckpointError) else None
    if isinstance(case.draft, Checkpoint) and guess is not None and guess.method != "medusa":
        try:
            cache_layers(case.draft.text_config)
        except ArchitectureError as error:
            problem = CheckpointError(
                f"its KV cache cannot be counted: {error}", "choose another draft model"
            )
    if problem is not None:
        yield case.document.at("serving", "speculative", "headers").fault(
            f"'serving.speculative.headers': {problem.what}", way_out=problem.way_out
        )


RULES = rules_of(globals())
