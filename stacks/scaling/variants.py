"""Which variants of an endpoint scale, between which counts, and what their resources are called."""

from __future__ import annotations

import hashlib

from onboarding.deployment import VARIANT, Deployment, Variant


def scaled_variants(deployment: Deployment) -> tuple[Variant, ...]:
    """Variants whose count moves, by load or by the clock; a fixed count needs no target, which
    would pin the instance type.
    """
    return tuple(each for each in deployment.variants if each.role == "variant" and _moves(each))


def variant_id(variant: Variant, part: str) -> str:
    """A logical id: the own variant's is the part alone, so that it never changes; others end in
    their name.

    Names that PascalCase cannot tell apart (`a-1` and `a1`, `aB` and `a-b`) get six digits of their
    digest.
    """
    if variant.name == VARIANT:
        return part
    words = variant.name.split("-")
    pascal = "".join(word[:1].upper() + word[1:] for word in words)
    is_plain = variant.name == variant.name.lower() and all(word[:1].isalpha() for word in words)
    return (
        part + pascal + ("" if is_plain else hashlib.sha256(variant.name.encode()).hexdigest()[:6])
    )


def fewest(variant: Variant) -> int:
    """The lowest floor that a variant ever has."""
    return min([variant.scaling.min, *(each.min for each in variant.scaling.schedule)])


def most(variant: Variant) -> int:
    """The highest ceiling that a variant ever has; a shadow keeps the count that it begins with."""
    if variant.role == "shadow":
        return variant.scaling.min
    return max(
        [
            variant.scaling.max,
            *(each.max for each in variant.scaling.schedule if each.max is not None),
        ]
    )


def _moves(variant: Variant) -> bool:
    return variant.scaling.max > variant.scaling.min or bool(variant.scaling.schedule)
