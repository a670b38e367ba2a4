"""Sizes, latencies, rates and amounts as they are shown."""

DASH, UNKNOWN = "–", "unknown"


def milliseconds(value: float | None) -> str:
    """Format a latency to three digits; a dash for None."""
    if value is None:
        return DASH
    digits = 0 if value >= 100 else 1 if value >= 10 else 2
    return f"{value:,.{digits}f} ms"


def per_second(value: float | None) -> str:
    """Format requests, or rows, a second; a dash for None."""
    if value is None:
        return DASH
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def usd(value: float | None) -> str:
    """Return an amount in USD with two decimals; one below a USD may have three digits."""
    if value is None:
        return UNKNOWN
    is_whole = abs(value) >= 1 or round(value, 2) == value
    return f"{value:,.2f}" if is_whole else f"{value:.3g}"
