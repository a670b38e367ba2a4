"""Charts as SVG: lines over two axes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
LABEL_HEIGHT, NEAR_TOP = 15.0, 5.0
Points = Sequence[tuple[float, float]]


def element(
    tag: str, /, *children: str | Iterable[Markup], **attributes: str | float | None
) -> Markup:
    """Return one SVG element; an attribute that is None is left out, `_` is written `-`."""
    written = ""
    for key, value in attributes.items():
        if value is not None:
            text = escape(value) if isinstance(value, str) else number(float(value))
            written += f' {key if key == "viewBox" else key.rstrip("_").replace("_", "-")}="{text}"'
    inner = "".join(
        escape(child) if isinstance(child, str) else "".join(child) for child in children
    )
    return Markup(f"<{tag}{written}>{inner}</{tag}>" if children else f"<{tag}{written}/>")


def number(value: float) -> str:
    """Format a coordinate: two digits are more than a screen shows."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def _text(text: str, x: float, y: float, **attributes: str | float | None) -> Markup:
    return element("text", text, x=x, y=y, **attributes)


def _line(x1: float, y1: float, x2: float, y2: float, **attributes: str | None) -> Markup:
    return element("line", x1=x1, x2=x2, y1=y1, y2=y2, **attributes)


@dataclass(frozen=True, kw_only=True)
class Scale:
    """A straight axis from [low, high] to [start, end] in pixels."""

    low: float
    high: float
    start: float
    end: float
    step: float

    def __call__(self, value: float) -> float:
        """Return the position of a value; what is outside lies at the edge."""
        within = min(max(value, self.low), self.high)
        return self.start + (within - self.low) / (self.high - self.low) * (self.end - self.start)

    @property
    def ticks(self) -> tuple[float, ...]:
        """Round values from low to high."""
        count = round((self.high - self.low) / self.step)
        return tuple(round(self.low + index * self.step, 10) for index in range(count + 1))


def scale(low: float, high: float, start: float, end: float, *, ticks: int = 4) -> Scale:
    """Return a scale over at least [low, high], its ends on ticks."""
    spread = high - low if high > low else max(abs(high), 1e-6) * 0.1
    power = 10.0 ** math.floor(math.log10(spread / ticks))
    step = next(power * s for s in STEPS if power * s >= spread / ticks * (1 - 1e-9))
    bottom, top = math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step
    if top <= bottom:
        bottom, top = bottom - step, bottom + step
    return Scale(low=bottom, high=top, start=start, end=end, step=step)


@dataclass(frozen=True, kw_only=True)
class Axis:
    """Positions of values, and the ticks with their labels."""

    position: Callable[[float], float]
    ticks: Sequence[tuple[float, str]]
    title: str = ""


def axis(scale: Scale, title: str = "") -> Axis:
    """Return the axis of a scale."""
    return Axis(position=scale, ticks=[(tick, f"{tick:,g}") for tick in scale.ticks], title=title)


@dataclass(frozen=True, kw_only=True)
class Frame:
    """The size of a chart and of the area inside its axes, in pixels."""

    width: float
    height: float
    left: float
    right: float
    top: float
    bottom: float


@dataclass(frozen=True, kw_only=True)
class Line:
    """A line of a chart. `kind` is its class in the style sheet."""

    name: str
    points: Points
    kind: str = ""
    radius: float | None = None  # of a dot at each point
    longest_gap: float = math.inf
    """Points that lie farther apart are not joined: nothing was known between them."""


@dataclass(frozen=True, kw_only=True)
class Mark:
    """A labelled line across the chart, level or upright."""

    value: float
    label: str
    kind: str = "level"
    upright: bool = False


def line_chart(
    title: str,
    lines: Sequence[Line],
    frame: Frame,
    across: Axis,
    up: Axis,
    marks: Sequence[Mark] = (),
) -> Markup:
    """Return a chart of lines over their axes; its title is for screen readers."""
    values = "; ".join(f"{line.name}: {len(line.points)} points" for line in lines)
    return element(
        "svg",
        element("title", f"{title}. {values}"),
        plot(lines, frame, across, up, marks),
        viewBox=f"0 0 {number(frame.width)} {number(frame.height)}",
        role="img",
    )


def plot(
    lines: Sequence[Line], frame: Frame, across: Axis, up: Axis, marks: Sequence[Mark] = ()
) -> list[Markup]:
    """Return axes, marks and lines, to be put into an SVG."""
    middle = (frame.left + frame.right) / 2
    drawn = []
    for value, label in across.ticks:
        x = across.position(value)
        drawn.append(_line(x, frame.top, x, frame.bottom, class_="grid across"))
        drawn.append(_text(label, x, frame.bottom + 16, text_anchor="middle", class_="tick"))
    for value, label in up.ticks:
        y = up.position(value)
        drawn.append(_line(frame.left, y, frame.right, y, class_="grid"))
        drawn.append(_text(label, frame.left - 7, y + 4, text_anchor="end", class_="tick"))
    if across.title:
        y = frame.bottom + 36
        drawn.append(_text(across.title, middle, y, text_anchor="middle", class_="tick"))
    if up.title:
        drawn.append(_text(up.title, 0, frame.top - 11, class_="tick unit"))
    drawn += [_upright(mark, frame, across) for mark in marks if mark.upright]
    drawn += _levels([mark for mark in marks if not mark.upright], frame, up)
    return drawn + [_curve(line, across.position, up.position) for line in lines]


def _upright(mark: Mark, frame: Frame, across: Axis) -> Markup:
    x = across.position(mark.value)
    anchor, beside = ("end", -5) if x > (frame.left + frame.right) / 2 else ("start", 5)
    line = _line(x, frame.top, x, frame.bottom, class_=f"mark {mark.kind}")
    y, kind = frame.top + 11, f"word {mark.kind}"
    return line + _text(mark.label, x + beside, y, text_anchor=anchor, class_=kind)


def _levels(marks: Sequence[Mark], frame: Frame, up: Axis) -> list[Markup]:
    """Draw from the top: a label stands above its line, or below where another is near above."""
    drawn, last = [], -math.inf
    for mark in sorted(marks, key=lambda mark: -mark.value):
        y = up.position(mark.value)
        is_below = y - frame.top < NEAR_TOP or y - last < LABEL_HEIGHT
        last, place = y, y + 12 if is_below else y - 4
        line = _line(frame.left, y, frame.right, y, class_=f"mark {mark.kind}")
        kind = f"word {mark.kind}"
        right = frame.right - 4
        drawn.append(line + _text(mark.label, right, place, text_anchor="end", class_=kind))
    return drawn


def _curve(line: Line, across: Callable[[float], float], up: Callable[[float], float]) -> Markup:
    drawn = Markup()
    for piece in _pieces(line):
        places = [(across(x), up(y)) for x, y in piece]
        if len(piece) > 1:
            path = " ".join(f"{number(x)},{number(y)}" for x, y in places)
            kind = f"line {line.kind}".rstrip()
            drawn += element("polyline", points=path, class_=kind)
        radius = line.radius or (2.2 if len(piece) == 1 else None)
        for x, y in places if radius is not None else ():
            kind = f"dot {line.kind}".rstrip()
            drawn += element("circle", cx=x, cy=y, r=radius, class_=kind)
    return drawn


def _pieces(line: Line) -> list[list[tuple[float, float]]]:
    pieces: list[list[tuple[float, float]]] = []
    for point in line.points:
        if not pieces or point[0] - pieces[-1][-1][0] > line.longest_gap:
            pieces.append([])
        pieces[-1].append(point)
    return pieces
