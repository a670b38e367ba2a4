"""Requests for generated text, read, checked and written again before the engine reads them.

Schemas, expressions and tools are bounded by the size of the grammar that they become: vLLM
compiles each to an automaton in the process that answers everybody. An array of 10^9 items took
20 GB of it, and a grammar of its own that recurses answered 500.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple, NoReturn

from container.server.types import RequestFault, UnknownPath
from container.server.vllm.settings import EngineSettings

CHAT, COMPLETION = "/v1/chat/completions", "/v1/completions"
INVOCATIONS = "/invocations"
LENGTHS = {
    "max_tokens": 1,
    "max_completion_tokens": 1,
    "min_tokens": 0,
    "truncate_prompt_tokens": 1,
}
"""Keys that count tokens of this context, and their least value."""
ENGINE_KEYS = frozenset(
    {
        "chat_template",
        "kv_transfer_params",
        "logits_processors",
        "mm_processor_kwargs",
        "prompt_embeds",
        "vllm_xargs",
    }
)
"""Keys that hand the engine code, templates, tensors or addresses of other engines."""
TEXT_PARTS = ("text", "refusal")


class EngineRequest(NamedTuple):
    """A request as the engine gets it."""

    path: str
    body: bytes
    sequences: int
    """Sequences that it occupies: answers times prompts."""
    streams: bool


def checked_request(
    body: bytes,
    path: str,
    settings: EngineSettings,
    models: Collection[str],
    adapter: str | None = None,
    versions: Mapping[str, int] | None = None,
) -> EngineRequest:
    """Return the engine's request of a client's body, or raise RequestFault.

    `models` are the names served now. `adapter` is SageMaker's, and goes before the body's own.
    `versions` counts how often an adapter was loaded. The body of `/invocations` says by its keys
    whether it is a chat or a completion.
    """
    document = _read_document(body)
    path = _path_of(document, path)
    document["model"] = _model_of(document, settings, models, adapter)
    _salt_cache(document, 1 if versions is None else versions.get(document["model"], 1))
    for key in sorted(ENGINE_KEYS & document.keys()):
        if document[key] is not None:
            raise RequestFault(f"{key!r} is not taken from requests.")
    for key, least in LENGTHS.items():
        _check_length(document.get(key), key, least, settings.max_model_len)
    prompts = _check_messages(document) if path == CHAT else _check_prompt(document)
    check_structures(document)
    streams = document.get("stream")
    if streams is not None and not isinstance(streams, bool):
        raise RequestFault(f"'stream' is {_excerpt(streams)}; it must be true or false.")
    sequences = prompts * _answers(document)
    if sequences > settings.most_sequences:
        raise RequestFault(
            f"The request asks for {sequences} answers at once, and {settings.most_sequences} may "
            "be; send fewer prompts, or a lower 'n'."
        )
    return EngineRequest(path, _encode(document), sequences, bool(streams))


def _read_document(body: bytes) -> dict[str, Any]:
    try:
        document = json.loads(str(body, "utf-8"), parse_constant=_refuse_constant)
    except RequestFault:
        raise
    except UnicodeDecodeError as fault:
        raise RequestFault(f"The body is not UTF-8, at byte {fault.start}.") from fault
    except RecursionError as fault:
        raise RequestFault("The body's JSON is nested too deeply.") from fault
    except ValueError as fault:  # also of a number with thousands of digits
        raise RequestFault(f"The body is not JSON: {str(fault)[:200]}.") from fault
    if not isinstance(document, dict):
        raise RequestFault(f"The body is {_excerpt(document)}; it must be a JSON object.")
    return document


def _refuse_constant(word: str) -> NoReturn:
    raise RequestFault(f"The body is not JSON: {word} is no number of it.")


def _path_of(document: Mapping[str, Any], path: str) -> str:
    """Return the engine's path; /invocations takes what both take."""
    key = {CHAT: "messages", COMPLETION: "prompt"}.get(path)
    if key is None:
        path, key = (CHAT, "messages") if "messages" in document else (COMPLETION, "prompt")
    if key in document:
        return path
    if "inputs" in document:
        raise RequestFault(
            "'inputs' and 'parameters' are LMI's schema; this endpoint speaks OpenAI's: send "
            "'messages' (a chat) or 'prompt' (a completion)."
        )
    wanted = f"{key!r}" if path == CHAT else "'messages' (a chat) or 'prompt' (a completion)"
    raise RequestFault(f"The body has no {wanted}.")


def _model_of(
    document: Mapping[str, Any],
    settings: EngineSettings,
    models: Collection[str],
    adapter: str | None,
) -> str:
    names = [name for name in (document.get("model"), adapter) if name not in (None, "")]
    for name in names:
        if not isinstance(name, str):
            raise RequestFault(f"'model' is {_excerpt(name)}; it must be a name.")
        if name not in models:
            raise UnknownPath(
                f"The model {name[:100]!r} does not exist here; known: {', '.join(sorted(models))}."
            )
    return str(names[-1]) if names else settings.model


def _salt_cache(document: dict[str, Any], version: int) -> None:
    """Keep an adapter that was loaded again from reading what its files before have cached.

    vLLM finds cached prompts by the adapter's name alone, and by a request's `cache_salt`.
    """
    own = document.get("cache_salt")
    if version > 1 and (own is None or isinstance(own, str)):
        document["cache_salt"] = f"{version}:{own or ''}"


def _check_length(value: Any, key: str, least: int, most: int | None) -> None:
    if value is None:
        return
    if type(value) is not int or value < least or (most is not None and value > most):
        limit = f"to {most}" if most is not None else "on"
        raise RequestFault(
            f"{key!r} is {_excerpt(value)}; it must be a whole number from {least} {limit}."
        )


def _check_messages(document: Mapping[str, Any]) -> int:
    messages = document["messages"]
    if not isinstance(messages, list) or not messages:
        raise RequestFault("'messages' must be a list of at least one message.")
    for message in messages:
        if not isinstance(message, dict):
            raise RequestFault(f"A message is {_excerpt(message)}; it must be an object.")
        content = message.get("content")
        for part in content if isinstance(content, list) else ():
            kind = part.get("type") if isinstance(part, dict) else None
            if kind not in TEXT_PARTS:
                raise RequestFault(
                    f"A part of a message is of type {_excerpt(kind)}; this endpoint reads text."
                )
    return 1


def _check_prompt(document: Mapping[str, Any]) -> int:
    """Return the number of prompts: a text or token ids are one, a list of them several."""
    prompt = document["prompt"]
    if isinstance(prompt, str):
        return 1
    if not isinstance(prompt, list) or not prompt:
        raise RequestFault("'prompt' must be a text, token ids, or a list of them.")
    if isinstance(prompt[0], int):
        return 1
    return len(prompt)


def _answers(document: Mapping[str, Any]) -> int:
    count = document.get("n")
    if count is None:
        return 1
    if type(count) is not int or count < 1:
        raise RequestFault(f"'n' is {_excerpt(count)}; it must be a whole number from 1 on.")
    return int(count)


def _encode(document: Mapping[str, Any]) -> bytes:
    """Return a document as UTF-8, which half of a surrogate pair cannot be."""
    try:
        text = json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return text.encode()
    except UnicodeEncodeError as fault:
        raise RequestFault("A text of the body has half of a surrogate pair.") from fault
    except ValueError as fault:
        raise RequestFault("A number of the body is greater than any that JSON has.") from fault
    except RecursionError as fault:
        raise RequestFault("The body's JSON is nested too deeply.") from fault


def _excerpt(value: Any) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else f"{text[:57]}..."


MOST_BYTES, MOST_WEIGHT = 1 << 16, 100_000
"""Of one request: bytes of its JSON, and nodes with all their repetitions written out."""
DEEPEST = 32
COUNTS = ("minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties",
          "minContains", "maxContains")  # fmt: skip
REPEATS = frozenset({"MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"})
SCHEMAS = ("json", "schema", "parameters")
"""Keys of whole schemas; vLLM answers 500 to one that is a reference to itself."""
UNTAKEN = ("grammar", "structural_tag")
"""Grammars in languages of their own, whose size cannot be seen here."""


def check_structures(document: Mapping[str, Any]) -> None:
    """Raise RequestFault for a request whose grammar would be too large, or could not be one."""
    structured = document.get("structured_outputs")
    if structured is not None and not isinstance(structured, dict):
        raise RequestFault("'structured_outputs' must be an object.")
    for key in UNTAKEN:
        if structured is not None and structured.get(key) is not None:
            raise RequestFault(f"'structured_outputs' takes json, regex and choice, not {key!r}.")
    form = document.get("response_format")
    if isinstance(form, dict) and form.get("type") in UNTAKEN:
        raise RequestFault(f"'response_format' of type {form['type']!r} is not taken here.")
    for key in ("structured_outputs", "response_format", "tools"):
        value = document.get(key)
        if value is None:
            continue
        if len(json.dumps(value)) > MOST_BYTES:
            raise RequestFault(f"{key!r} has more than {MOST_BYTES} bytes.")
        if _weight(value, DEEPEST) > MOST_WEIGHT:
            raise RequestFault(
                f"{key!r} becomes a grammar of more than {MOST_WEIGHT} nodes; lower its counts of "
                "items, of characters or of repetitions."
            )


def _weight(value: Any, depth: int, key: str = "") -> int:
    """Return the nodes of a value, those within repetitions as often as they may repeat."""
    if depth == 0:
        raise RequestFault(f"A schema is nested deeper than {DEEPEST}.")
    if isinstance(value, dict):
        if key in SCHEMAS and value.get("$ref") == "#":
            raise RequestFault(f"The schema {key!r} is a reference to itself, and takes nothing.")
        times = max([1, *(_count(value.get(name)) for name in COUNTS)])
        names = sum(_expression_weight(name) for name in value) if key == "patternProperties" else 0
        return times * (
            1 + names + sum(_weight(row, depth - 1, name) for name, row in value.items())
        )
    if isinstance(value, list):
        return 1 + sum(_weight(row, depth - 1) for row in value)
    if isinstance(value, str) and key in ("regex", "pattern"):
        return _expression_weight(value)
    if isinstance(value, str) and key == "json":
        return _weight(_parse(value), depth - 1, key)
    return 0


def _parse(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as fault:
        raise RequestFault("'json' of 'structured_outputs' is no JSON.") from fault


def _count(value: Any) -> int:
    return int(min(value, MOST_WEIGHT + 1)) if isinstance(value, int | float) else 1


def _expression_weight(text: str) -> int:
    r"""Return the weight of a regular expression. Raises RequestFault for one of another dialect.

    vLLM answers 500 to some of those: classes by a property of Unicode, \p{Han}.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _tree_weight(re._parser.parse(text))  # type: ignore[attr-defined]
    except (re.error, OverflowError, RecursionError) as fault:
        raise RequestFault(
            f"The regular expression {text[:60]!r} is not read here ({str(fault)[:100]})."
        ) from fault


def _tree_weight(nodes: Iterable[Any]) -> int:
    """Return the weight of parsed nodes; one without an upper bound loops, and repeats no node."""
    total = 1
    for node in nodes:
        name, inner = (str(node[0]), node[1]) if isinstance(node, tuple) else ("", node)
        if name in REPEATS:
            least, most, part = inner
            times = least if most >= re._constants.MAXREPEAT else most  # type: ignore[attr-defined]
            total += max(1, times) * _tree_weight(part)
        elif isinstance(inner, tuple | list) or hasattr(inner, "data"):
            total += _tree_weight(inner)
        else:
            total += 1
    return total
