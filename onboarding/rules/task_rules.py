"""What a model is asked to do, by whom."""

from __future__ import annotations

from collections.abc import Iterator

from onboarding.fault import Fault
from onboarding.rules.rule import ModelCase, rule


@rule("task")
def generation_has_its_own_containers(case: ModelCase) -> Iterator[Fault]:
    """A text generator needs a paged cache and continuous batching, which a plain engine does not have."""
    if case.spec.task == "text-generation":
        yield case.document.at("task").fault(
            "'task' is not served by a TensorRT engine of this road",
            value=case.spec.task,
            allowed="text-classification, text-embedding, tensors",
            way_out="serve it with AWS's vLLM or LMI (DJL Serving) container",
        )


@rule("serving")
def cache_is_triton_only(case: ModelCase) -> Iterator[Fault]:
    """The Python server keeps no answers."""
    if case.spec.serving.response_cache and case.spec.serving.server == "python":
        yield case.document.at_change(("serving", "response_cache"), ("serving", "server")).fault(
            "'serving.response_cache' is Triton's, and 'serving.server' is python",
            allowed="response_cache: false, or server: triton",
            way_out="change one of the two",
        )


RULES = (generation_has_its_own_containers, cache_is_triton_only)
