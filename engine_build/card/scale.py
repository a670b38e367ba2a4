"""From values to places on a chart, with ticks at round numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass

STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True, kw_only=True)
class Scale:
    """A straight line from [low, high] to [start, end]."""

    low: float
    high: float
    start: float
    end: float
    step: float

    def __call__(self, value: float) -> float:
        """Where a value lies; what is outside lies at the edge."""
        within = min(max(value, self.low), self.high)
        return self.start + (within - self.low) / (self.high - self.low) * (self.end - self.start)

    @property
    def ticks(self) -> tuple[float, ...]:
        """Round values from low to high."""
        count = round((self.high - self.low) / self.step)
        return tuple(round(self.low + index * self.step, 10) for index in range(count + 1))

    def told(self, value: float) -> str:
        """A tick's label, with as many digits as its step has."""
        return f"{value:.{_digits(self.step)}f}"


def scale(
    low: float, high: float, start: float, end: float, *, ticks: int = 4, most: float = math.inf
) -> Scale:
    """A scale over at least [low, high], its ends on ticks, none above `most`."""
    spread = high - low if high > low else max(abs(high), 1e-6) * 0.1
    rough = spread / ticks
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * each for each in STEPS if power * each >= rough * (1 - 1e-9))
    bottom, top = math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step
    if top <= bottom:
        bottom, top = bottom - step, bottom + step
    if top > most:
        top = most
        bottom = most - max(1, math.ceil((most - low) / step - 1e-9)) * step
    return Scale(low=bottom, high=top, start=start, end=end, step=step)


def _digits(step: float) -> int:
    for digits in range(10):
        if abs(round(step, digits) - step) < step * 1e-6:
            return digits
    return 10
