"""Sizes, latencies and rates as they are shown."""

DASH = "–"


def size(count: int | None) -> str:
    """Format bytes; a dash for None."""
    if count is None:
        return DASH
    return f"{count / 1e6:,.1f} MB" if count >= 100_000 else f"{count:,} bytes"


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
