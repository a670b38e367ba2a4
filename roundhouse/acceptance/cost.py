"""The most that a run can cost: what it rents, for as long as its steps may take at most.

Not in the sum, since they come to cents: S3, KMS, CloudWatch, ECR's storage, Lambda, Step
Functions, and the bytes that move.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from onboarding.prices import SHOWN_PATH, price
from roundhouse.acceptance.setup import Setup, TinyModel
from roundhouse.acceptance.steps.step import AcceptanceStep
from roundhouse.errors import RoundhouseError
from roundhouse.gitops.build_estimates import CODEBUILD_HOSTS

IMAGES_HOST = "linux.large"
UNITS = {"hosting": 60.0, "training": 60.0, "codebuild": 1.0, "fleet": 1.0}
"""Minutes that a price of each kind is for."""


@dataclass(frozen=True, kw_only=True)
class Charge:
    """One thing that is rented: `count` of it for `minutes`; `unit_usd` None: no known price."""

    step: str
    what: str
    price_name: str
    unit_usd: float | None
    count: int
    minutes: float

    @property
    def usd(self) -> float | None:
        """Return what it costs at most."""
        if self.unit_usd is None:
            return None
        kind = self.price_name.partition(":")[0]
        return self.count * self.minutes * self.unit_usd / UNITS[kind]


def charges(
    setup: Setup, steps: Sequence[AcceptanceStep], given: Mapping[str, float]
) -> tuple[Charge, ...]:
    """Return everything that a run rents; `given` prices come before those of the price file.

    Nothing in the local cloud. Names of prices: hosting:TYPE, training:TYPE (USD an hour),
    codebuild:HOST and fleet:gpu (USD a minute).
    """
    if setup.in_local_cloud:
        return ()
    result: list[Charge] = []
    for step in steps:
        minutes = step.limit_minutes
        if step.name == "images":
            result.append(_charge(setup, step, "images", f"codebuild:{IMAGES_HOST}", 1, given))
        if step.name == "engines":
            result += [
                _charge(setup, step, f"build of {model.name}", _build_price(model), 1, given)
                for model in setup.models
            ]
        for model in setup.deployed:
            count = step.instances.get(model.name, 0)
            if count and minutes:
                name = f"hosting:{model.instance_type.name}"
                what = f"endpoint {setup.endpoint(model)}"
                result.append(_charge(setup, step, what, name, count, given))
    return tuple(result)


def bound_usd(items: Sequence[Charge], region: str) -> float:
    """Return the sum of all. Raises RoundhouseError, naming every price that is not known."""
    unknown = dict.fromkeys(item.price_name for item in items if item.unit_usd is None)
    if unknown:
        options = " ".join(f"--price {name}=USD" for name in unknown)
        raise RoundhouseError(
            f"Refused: {SHOWN_PATH} has no price in {region} of {', '.join(unknown)}, so the cost "
            f"has no bound; give it ({options}; hosting and training an hour, others a minute), "
            "or add it with `make prices`."
        )
    return sum(item.usd or 0.0 for item in items)


def require_within(bound: float, max_usd: float | None) -> None:
    """Refuse a run that may cost more than it may. Raises RoundhouseError."""
    if bound == 0.0:
        return
    if max_usd is None:
        raise RoundhouseError(
            f"Refused: this run may cost up to {bound:.2f} USD; say that it may with --max-usd "
            f"{_next_dollar(bound)} (`--plan` shows what for)."
        )
    if max_usd < bound:
        raise RoundhouseError(
            f"Refused: --max-usd is {max_usd:g}, and this run may cost up to {bound:.2f} USD; "
            f"allow --max-usd {_next_dollar(bound)}, or less time (--minutes)."
        )


def _next_dollar(usd: float) -> str:
    return f"{int(usd) + 1}"


def _build_price(model: TinyModel) -> str:
    if model.route in CODEBUILD_HOSTS:
        return f"codebuild:{CODEBUILD_HOSTS[model.route]}"
    return "fleet:gpu" if model.route == "fleet" else f"training:{model.instance_type.name}"


def _charge(
    setup: Setup,
    step: AcceptanceStep,
    what: str,
    price_name: str,
    count: int,
    given: Mapping[str, float],
) -> Charge:
    kind, _, name = price_name.partition(":")
    known = given.get(price_name)
    region = setup.environment.region
    if known is None and kind in ("hosting", "training", "codebuild"):
        known = price(region, kind, name)  # type: ignore[arg-type]
    return Charge(
        step=step.name,
        what=what,
        price_name=price_name,
        unit_usd=known,
        count=count,
        minutes=step.limit_minutes,
    )
