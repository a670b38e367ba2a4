"""Return on investment of a text generator: a measured baseline against the plan. Pure.

Both sides are sized for the same output tokens a second; a number that nobody measured or planned
stays unknown.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from onboarding.fault import Fault, FaultsError
from onboarding.platform import InstanceType
from onboarding.text_generation.plan import Candidate
from onboarding.text_generation.spec import TextGenerationSpec
from onboarding.values import Value
from roundhouse.errors import RoundhouseError
from roundhouse.savings.investment import DAYS_A_MONTH, Fleet, Instances, Investment

SECONDS_AN_HOUR, MILLION = 3600, 1e6
Positive = Annotated[float, Field(gt=0)]


class BaselineRow(Value):
    """Output tokens a second of one batch size: the median of rounds, with their ends."""

    batch: Annotated[int, Field(ge=1)]
    output_tokens_per_second: Positive
    lowest: Positive
    highest: Positive
    rates: tuple[Positive, ...] = ()
    """Of each round; older files have none."""
    rounds: Annotated[int, Field(ge=1)]

    @property
    def token_ms(self) -> float:
        """Milliseconds between two tokens of one request."""
        return 1000 * self.batch / self.output_tokens_per_second


class Baseline(Value):
    """What a benchmark of the present way to generate wrote."""

    version: Literal[1] = 1
    tool: str
    """Such as `transformers 5.17 generate`."""
    model: str
    dtype: str
    hardware: str
    gpu: str | None
    """By the name of onboarding/data/instance_types.yaml; None: a CPU."""
    gpus: Annotated[int, Field(ge=0)]
    """That one process used."""
    prompt_tokens: Annotated[int, Field(ge=1)]
    output_tokens: Annotated[int, Field(ge=1)]
    rows: tuple[BaselineRow, ...] = Field(min_length=1)
    date: str
    command: str


def read_baseline(path: Path) -> Baseline:
    """Return the baseline of a JSON file. Raises FaultsError with all that is wrong."""
    try:
        return Baseline.model_validate_json(path.read_bytes())
    except OSError as error:
        raise RoundhouseError(
            f"--baseline {path}: {error.strerror}; `python -m benchmarks.generation_baseline` "
            "writes one."
        ) from error
    except ValidationError as error:
        way_out = "measure it with `python -m benchmarks.generation_baseline`"
        raise FaultsError(
            Fault(
                file=str(path),
                what=f"{'.'.join(map(str, item['loc'])) or 'the file'}: {item['msg']}",
                way_out=way_out,
            )
            for item in error.errors(include_url=False)
        ) from error


@dataclass(frozen=True, kw_only=True)
class Side:
    """One way to make the tokens; None: not known."""

    name: str
    origin: str
    """Where the rate comes from."""
    tokens_per_second: float | None
    """Output tokens, of one instance."""
    instance_type: str
    instances: int | None
    usd_an_hour: float | None
    """Of all of them."""
    usd_a_million_tokens: float | None
    note: str = ""

    @property
    def fleet(self) -> Fleet:
        """The instances, for the arithmetic of savings."""
        hourly = None
        if self.usd_an_hour is not None and self.instances:
            hourly = self.usd_an_hour / self.instances
        group = Instances(
            instance_type=self.instance_type, count=self.instances, usd_an_hour=hourly
        )
        return Fleet(groups=(group,), origin=self.origin)


@dataclass(frozen=True, kw_only=True)
class GenerationReturn:
    """A baseline against the plan, for one demand."""

    model: str
    environment: str
    demand: float
    """Output tokens a second."""
    baseline: Side
    plan: Side
    build_usd: float | None

    @property
    def investment(self) -> Investment:
        """Saving, and the time in which it pays the build."""
        is_known = self.baseline.tokens_per_second is not None
        return Investment(
            name=self.model,
            present=self.baseline.fleet if is_known else None,
            proposed=self.plan.fleet,
            build_usd=self.build_usd,
            note="" if is_known else self.baseline.note,
        )

    @property
    def months(self) -> float | None:
        """Months until the saving has paid the build; None: never, or not known."""
        days = self.investment.break_even_days
        return None if days is None else days / DAYS_A_MONTH

    @property
    def speed_up(self) -> float | None:
        """Tokens a second of an instance of the plan, as a multiple of the baseline's."""
        before, after = self.baseline.tokens_per_second, self.plan.tokens_per_second
        return None if before is None or after is None else after / before

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain JSON."""
        return {
            **asdict(self),
            "speed_up": self.speed_up,
            "months_to_pay_back": self.months,
            "investment": self.investment.as_dict(),
        }


def plan_side(
    candidate: Candidate,
    *,
    demand: float | None,
    concurrency: int,
    price: float | None,
    measured: float | None = None,
) -> tuple[Side, float]:
    """Return the plan's side and the demand, by default what the SLO's concurrency makes.

    `measured`: output tokens a second of one copy in a load test; None: the planner's estimate.
    Raises RoundhouseError where neither is known.
    """
    per_copy = measured
    if per_copy is None:
        if candidate.itl_ms is None or not candidate.copies:
            raise RoundhouseError(
                f"{candidate.instance_type}: its speed is neither measured nor planned; measure it "
                "with `roundhouse bench NAME --env E --record`."
            )
        per_copy = concurrency / candidate.copies / (candidate.itl_ms / 1000)
    wanted = per_copy * (candidate.copies or 1) if demand is None else demand
    per_instance = per_copy * candidate.copies_per_instance
    instances = max(math.ceil(wanted / per_instance - 1e-9), 1)
    origin = "measured by `roundhouse bench`" if measured is not None else "planned, not measured"
    name = f"plan: {candidate.scheme}, tensor parallel {candidate.tensor_parallel}"
    return (
        _side(name, origin, per_instance, candidate.instance_type, instances, price, wanted),
        wanted,
    )


def baseline_side(
    baseline: Baseline | None,
    *,
    spec: TextGenerationSpec,
    demand: float,
    instance: InstanceType | None,
    price: float | None,
) -> Side:
    """Return the baseline's side: its fastest batch whose tokens come within the SLO.

    Every GPU of an instance runs a process of its own. Raises RoundhouseError for an instance type
    of another GPU than the baseline's.
    """
    if baseline is None:
        note = "no baseline was measured: give --baseline FILE"
        return Side(
            name="baseline", origin=note, tokens_per_second=None, instance_type="unknown",
            instances=None, usd_an_hour=None, usd_a_million_tokens=None, note=note,
        )  # fmt: skip
    limit = spec.slo.itl_p95_ms
    within = [row for row in baseline.rows if row.token_ms <= limit]
    row = max(within or baseline.rows, key=lambda row: row.output_tokens_per_second)
    note = (
        f"batch {row.batch}, {row.token_ms:.0f} ms a token"
        f"{'' if within else f': above the SLO of {limit:g} ms'}; measured on {baseline.hardware}, "
        f"{baseline.date}, {row.rounds} rounds from {row.lowest:,.4g} to {row.highest:,.4g}"
    )
    name = f"baseline: {baseline.tool}, {baseline.dtype}"
    if instance is None:
        processes, instance_type = 1, baseline.hardware
    else:
        if instance.gpu != baseline.gpu:
            raise RoundhouseError(
                f"--instance-type {instance.name}: has {instance.gpu or 'no GPU'}, and the "
                f"baseline was measured on {baseline.gpu or 'a CPU'}; measure it there, or name "
                "a type with that GPU."
            )
        processes = instance.gpu_count // baseline.gpus if baseline.gpus else 1
        instance_type = instance.name
    per_instance = row.output_tokens_per_second * max(processes, 1)
    instances = max(math.ceil(demand / per_instance - 1e-9), 1)
    return _side(name, "measured", per_instance, instance_type, instances, price, demand, note)


def _side(
    name: str,
    origin: str,
    per_instance: float,
    instance_type: str,
    instances: int,
    price: float | None,
    demand: float,
    note: str = "",
) -> Side:
    hourly = None if price is None else price * instances
    return Side(
        name=name,
        origin=origin,
        tokens_per_second=per_instance,
        instance_type=instance_type,
        instances=instances,
        usd_an_hour=hourly,
        usd_a_million_tokens=None
        if hourly is None
        else hourly / SECONDS_AN_HOUR / demand * MILLION,
        note=note,
    )
