"""Numbers as a reader wants them: three significant digits, and a spread in the notation of its mean."""

from __future__ import annotations

import math


def number(value: float, digits: int = 3, most_decimals: int | None = None) -> str:
    """`digits` significant digits, at most `most_decimals` decimals: 0.00457, 12.3, 1.20e-07."""
    if not math.isfinite(value) or value == 0:
        return "0" if value == 0 else str(value)
    exponent = _exponent(value, digits)
    if _is_plain(exponent) or most_decimals is not None:
        return f"{value:.{_decimals(exponent, digits, most_decimals)}f}"
    return f"{value:.{digits - 1}e}"


def plus_minus(mean: float, std: float | None, most_decimals: int | None = None) -> str:
    """`mean ± std` in one notation; the std has two digits, and at most two decimals beyond the mean's.

    The mean alone where the spread is unknown. Where the mean has an exponent, the std takes the same one.
    """
    text = number(mean, 3, most_decimals)
    if std is None:
        return text
    if "e" in text:
        mantissa, _, exponent = text.partition("e")
        scaled = std / 10.0 ** int(exponent)
        places = _decimals(_exponent(scaled, 2), 2, 4) if 0 < scaled < 0.005 else 2  # none that is there reads as 0.00
        return f"{mantissa}e{exponent} ± {scaled:.{places}f}e{exponent}"
    places = len(text.partition(".")[2])
    finest = places + 2 if most_decimals is None else min(places + 2, most_decimals)
    return f"{text} ± {std:.{_decimals(_exponent(std, 2), 2, finest) if std > 0 else places}f}"


def _exponent(value: float, digits: int) -> int:
    """Power of ten of the rounded value: 9.999 counts as 10.0."""
    return int(f"{value:.{digits - 1}e}".partition("e")[2])


def _is_plain(exponent: int) -> bool:
    return -4 <= exponent < 5


def _decimals(exponent: int, digits: int, most: int | None) -> int:
    wanted = max(0, digits - 1 - exponent)
    return wanted if most is None else min(wanted, most)


def as_printed(value: float) -> str:
    """A published number with all its digits, and two at least."""
    short = number(value, 2)
    return short if float(short) == value else str(value)
