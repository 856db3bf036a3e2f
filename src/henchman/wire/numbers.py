"""Doubles as Ruby writes them.

Ruby's json (from 2.15 on; docs/sidekiq.md names the older ones) has a double's digits from the Grisu2 algorithm
(Loitsch, PLDI 2010): most are the shortest that read back as the same double, about one double of a thousand gets a
digit more. So the algorithm itself stands here; Python's ``repr`` would differ for those. Whole numbers below 10¹⁵ and
small decimals are written out, the rest as ``1.5e+20``.
"""

from __future__ import annotations

import functools
import math

__all__ = ["as_ruby"]

_HIDDEN = 1 << 52
_DENORMAL = -1074  # the exponent of the smallest doubles
_FIRST, _STEP = -348, 8  # the powers of ten that are kept: 10⁻³⁴⁸, 10⁻³⁴⁰, …
_LOWEST, _HIGHEST = -60, -32  # where the exponent of a scaled number must lie
_WHOLE = 15  # digits before the point that are written out


def as_ruby(value: float) -> bytes:
    """A finite ``value`` as JSON text."""
    sign = "-" if math.copysign(1.0, value) < 0 else ""
    if value == 0:
        return f"{sign}0.0".encode()
    digits, exponent = _grisu2(abs(value))
    return f"{sign}{_written(digits, exponent)}".encode()


def _written(digits: str, exponent: int) -> str:
    """The number ``digits`` · 10^``exponent``."""
    leading = exponent + len(digits) - 1
    if exponent >= 0 and leading < _WHOLE:
        return f"{digits}{'0' * exponent}.0"
    if exponent < 0 and (exponent > -7 or abs(leading) < 10):
        whole = len(digits) + exponent
        return f"{digits[:whole]}.{digits[whole:]}" if whole > 0 else f"0.{'0' * -whole}{digits}"
    return f"{digits[0]}{'.' if len(digits) > 1 else ''}{digits[1:]}e{leading:+d}"


def _grisu2(value: float) -> tuple[str, int]:
    """Digits and a power of ten for ``value`` > 0."""
    mantissa, exponent = math.frexp(value)
    fraction, exponent = int(mantissa * (1 << 53)), exponent - 53
    if exponent < _DENORMAL:
        fraction, exponent = fraction >> (_DENORMAL - exponent), _DENORMAL
    upper, scale = _normal(2 * fraction + 1, exponent - 1)
    closer = 2 if fraction == _HIDDEN else 1  # below a power of two the neighbour is half as far
    lower = ((fraction << closer) - 1) << (exponent - closer - scale)
    middle, _ = _normal(fraction, exponent)  # its scale is that of ``upper``
    power, power_exponent, ten = _power(scale)
    # Products are rounded to 64 bits: the interval is taken in by one at both ends, so that it is right in any case.
    high, low = _product(upper, power) - 1, _product(lower, power) + 1
    digits, dropped = _digits(high, high - low, high - _product(middle, power), -(scale + power_exponent + 64))
    return digits, dropped - ten


def _normal(fraction: int, exponent: int) -> tuple[int, int]:
    """The same number with 64 bits."""
    shift = 64 - fraction.bit_length()
    return fraction << shift, exponent - shift


def _product(one: int, other: int) -> int:
    return (one * other + (1 << 63)) >> 64


def _power(exponent: int) -> tuple[int, int, int]:
    """A power of ten that brings ``exponent`` into range: its 64 bits, its exponent, and which power it is."""
    place = (int(-(exponent + 87) * 0.30102999566398114) - _FIRST) // _STEP
    while True:
        power, power_exponent = _ten_to(_FIRST + place * _STEP)
        scaled = exponent + power_exponent + 64
        if _LOWEST <= scaled <= _HIGHEST:
            return power, power_exponent, _FIRST + place * _STEP
        place += 1 if scaled < _LOWEST else -1


@functools.cache
def _ten_to(ten: int) -> tuple[int, int]:
    """10^``ten`` as 64 bits, rounded, and an exponent of two."""
    if ten >= 0:
        whole = 10**ten
        exponent = whole.bit_length() - 64
        rounded = (whole << -exponent) if exponent <= 0 else (whole + (1 << (exponent - 1))) >> exponent
        return rounded, exponent
    divisor = 10**-ten
    exponent = -divisor.bit_length() - 63
    rounded = ((1 << (1 - exponent)) // divisor + 1) >> 1
    if rounded >> 64:
        exponent += 1
        rounded = ((1 << (1 - exponent)) // divisor + 1) >> 1
    return rounded, exponent


def _digits(high: int, width: int, distance: int, bits: int) -> tuple[str, int]:
    """The digits of ``high``, of which the last ``bits`` are behind the point, as far as they are needed to stay within
    ``width``; brought nearer to the number itself, which lies ``distance`` below. And the power of the last digit."""
    digits = ""
    whole, rest = high >> bits, high & ((1 << bits) - 1)
    for power in range(9, -1, -1):
        digit, whole = divmod(whole, 10**power)
        if digit or digits:
            digits += str(digit)
        left = (whole << bits) + rest
        if left <= width:
            return _nearer(digits, width, left, 10**power << bits, distance), power
    one, power = 1 << bits, 0
    while True:
        rest, width, distance, power = rest * 10, width * 10, distance * 10, power - 1
        digit, rest = rest >> bits, rest & (one - 1)
        if digit or digits:
            digits += str(digit)
        if rest < width:
            return _nearer(digits, width, rest, one, distance), power


def _nearer(digits: str, width: int, left: int, unit: int, distance: int) -> str:
    """``digits`` with the last one lowered as long as that comes nearer to the number and stays within ``width``."""
    last = int(digits[-1])
    while (
        left < distance
        and width - left >= unit
        and (left + unit < distance or distance - left > left + unit - distance)
    ):
        last, left = last - 1, left + unit
    return f"{digits[:-1]}{last}"
