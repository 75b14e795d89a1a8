"""Units of measurement: which symbols stand for which, and how one and several are said."""

from __future__ import annotations

from typing import Final

PREFIXED: Final = {
    "m": "meter", "g": "gram", "L": "liter", "l": "liter", "Hz": "hertz", "W": "watt", "V": "volt",
    "Wh": "watt hour", "Pa": "pascal", "bps": "bit per second", "B": "byte", "cal": "calorie",
}  # fmt: skip
PREFIXES: Final = {
    "m": "kcm\u00b5\u03bcn", "g": "km\u00b5\u03bc", "L": "mcd", "l": "mcd", "Hz": "kMG", "W": "kMG",
    "V": "km", "Wh": "kMGT", "Pa": "kMh", "bps": "kMGT", "B": "kKMGTP", "cal": "k",
}  # fmt: skip
PREFIX_NAMES: Final = {
    "k": "kilo", "K": "kilo", "c": "centi", "m": "milli", "d": "deci", "\u00b5": "micro",
    "\u03bc": "micro", "n": "nano", "M": "mega", "G": "giga", "T": "tera", "P": "peta",
    "h": "hecto",
}  # fmt: skip
OTHER_UNITS: Final = {
    "mi": ("mile", "miles"),
    "ft": ("foot", "feet"),
    "yd": ("yard", "yards"),
    "lb": ("pound", "pounds"),
    "lbs": ("pound", "pounds"),
    "oz": ("ounce", "ounces"),
    "gal": ("gallon", "gallons"),
    "mph": ("mile per hour", "miles per hour"),
    "km/h": ("kilometer per hour", "kilometers per hour"),
    "kph": ("kilometer per hour", "kilometers per hour"),
    "m/s": ("meter per second", "meters per second"),
    "rpm": ("revolution per minute", "revolutions per minute"),
    "ms": ("millisecond", "milliseconds"),
    "sec": ("second", "seconds"),
    "secs": ("second", "seconds"),
    "min": ("minute", "minutes"),
    "mins": ("minute", "minutes"),
    "h": ("hour", "hours"),
    "hr": ("hour", "hours"),
    "hrs": ("hour", "hours"),
    "dB": ("decibel", "decibels"),
    "m\u00b2": ("square meter", "square meters"),
    "km\u00b2": ("square kilometer", "square kilometers"),
    "m\u00b3": ("cubic meter", "cubic meters"),
    "%": ("percent", "percent"),
    "\u00b0": ("degree", "degrees"),
    "\u00b0C": ("degree Celsius", "degrees Celsius"),
    "\u00b0F": ("degree Fahrenheit", "degrees Fahrenheit"),
}
ONLY_ATTACHED: Final = {
    "s": ("second", "seconds"),
    "in": ("inch", "inches"),
}
"""Units that are another word, or a part of one, when they stand alone."""
NOT_ALONE: Final = frozenset("LVWB")
"""Capitals that stand for a place or a name at least as often: "12 W Main", "Room 5B"."""
WITH_A_DOT: Final = frozenset(
    ("mi", "ft", "yd", "lb", "lbs", "oz", "gal", "sec", "secs", "min", "mins", "hr", "hrs", "in")
)
"""Those that may be written with a full stop of their own."""


def _all_units() -> dict[str, tuple[str, str]]:
    units = dict(OTHER_UNITS)
    for symbol, name in PREFIXED.items():
        for prefix in PREFIXES[symbol]:
            units[prefix + symbol] = _both(PREFIX_NAMES[prefix] + name)
        if symbol not in ("B", "V", "W"):
            units[symbol] = _both(name)
    return units


def _both(name: str) -> tuple[str, str]:
    head, per, rest = name.partition(" per ")
    plural = head if head.endswith("hertz") else f"{head}s"
    return name, f"{plural}{per}{rest}"


SPACED: Final = {k: v for k, v in _all_units().items() if k not in NOT_ALONE}
ATTACHED: Final = _all_units() | ONLY_ATTACHED | {"V": ("volt", "volts"), "W": ("watt", "watts")}
