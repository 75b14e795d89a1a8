"""How a variable's text becomes a value: strictly, or with an error that names the variable.

An empty variable counts as one that is not set. Nothing is guessed and no value is repeated in an
error, since it may be a secret.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Final

Env = Mapping[str, str]

TRUE_WORDS: Final = frozenset({"1", "true", "yes", "on"})
FALSE_WORDS: Final = frozenset({"0", "false", "no", "off", "disabled"})

PREFIX: Final = "PSIONIC_CSM_"
"""Every name that begins so is this service's to know."""
_LINK: Final = re.compile(r".*_(SERVICE_HOST|SERVICE_PORT(_.*)?|PORT_[0-9]+_(TCP|UDP|SCTP)(_.*)?)")
_LINK_URL: Final = re.compile(r"(tcp|udp|sctp)://.*")
"""What Kubernetes sets in every pod for each service of its namespace, unless the pod declines."""
_SCRIPTS: Final = (f"{PREFIX}BENCHMARK_", f"{PREFIX}SMOKE_")
"""Names of Autopilot's own scripts."""


BAD_SETTING: Final = 2
"""The exit code of a process that can't start as configured."""


class SettingsError(ValueError):
    """An environment variable with a value that can't be used."""

    def __init__(self, name: str, takes: str) -> None:
        super().__init__(f"{name}: takes {takes}")
        self.name = name


class UnknownSetting(SettingsError):
    """An environment variable that looks like a setting and is none."""

    def __init__(self, name: str, nearest: str | None) -> None:
        meant = f"; did you mean {nearest}?" if nearest else "; docs/operating.md lists them"
        ValueError.__init__(self, f"{name}: no such setting{meant}")
        self.name = name


class Asked(dict[str, str]):
    """An empty environment that notes which names are read from it."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def get(self, name: str, default: str | None = None) -> str | None:  # type: ignore[override]
        self.names.add(name)
        return default


def refuse_unknown(env: Env, known: Callable[[], Collection[str]]) -> None:
    """Raises UnknownSetting for the first name with our prefix that nothing reads."""
    ours = sorted(name for name in env if name.startswith(PREFIX) and env[name])
    for name in ours:
        if name not in known() and not _is_foreign(name, env[name]):
            raise UnknownSetting(name, _nearest(name, known()))


def _is_foreign(name: str, value: str) -> bool:
    if name.startswith(_SCRIPTS) or _LINK.fullmatch(name):
        return True
    return name.endswith("_PORT") and _LINK_URL.fullmatch(value) is not None


def _nearest(name: str, known: Collection[str]) -> str | None:
    tails = sorted(each.removeprefix(PREFIX) for each in known if each.startswith(PREFIX))
    found = difflib.get_close_matches(name.removeprefix(PREFIX), tails, n=1, cutoff=0.45)
    return PREFIX + found[0] if found else None


def text(env: Env, name: str, default: str) -> str:
    return env.get(name, "") or default


def integer(env: Env, name: str, default: int, low: int, high: int) -> int:
    given = env.get(name, "").strip()
    if not given:
        return default
    takes = f"a whole number from {low} to {high}"
    if not re.fullmatch(r"-?[0-9]{1,18}", given, re.ASCII):
        raise SettingsError(name, takes)
    value = int(given)
    if not low <= value <= high:
        raise SettingsError(name, takes)
    return value


def flag(env: Env, name: str, default: bool) -> bool:
    word = env.get(name, "").strip().lower()
    if not word:
        return default
    if word in TRUE_WORDS:
        return True
    if word in FALSE_WORDS:
        return False
    raise SettingsError(name, "true or false (also 1/0, yes/no, on/off)")


def choice(env: Env, name: str, default: str, choices: Iterable[str]) -> str:
    word = text(env, name, default).strip().lower()
    known = tuple(choices)
    if word not in known:
        raise SettingsError(name, f"one of {', '.join(known)}")
    return word


def key_part(env: Env, name: str, default: str) -> str:
    """A name that can be a part of Redis keys and of RQ's ids."""
    value = text(env, name, default)
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,32}", value, re.ASCII):
        raise SettingsError(name, "1 to 32 of the characters A-Z a-z 0-9 _ -")
    return value


def label(env: Env, name: str, default: str) -> str:
    """A published label, which also has to be a legal HTTP header value."""
    value = text(env, name, default)
    if not re.fullmatch(r"[\x21-\x7e][\x20-\x7e]{0,254}", value):
        raise SettingsError(name, "up to 255 printable ASCII characters")
    return value


def comma_list(env: Env, name: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in env.get(name, "").split(",") if part.strip())


def secrets(env: Env, name: str) -> tuple[str, ...]:
    """Keys from a comma list, or one a line from the file whose path the variable holds."""
    value = env.get(name, "").strip()
    if value.startswith(("/", "./")):
        try:
            lines = Path(value).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise SettingsError(name, "a comma list of keys, or a readable file of keys") from error
        keys = tuple(line.strip() for line in lines if line.strip() and not line.startswith("#"))
        if not keys:
            raise SettingsError(name, "a file with at least one key")
    else:
        keys = comma_list(env, name)
    if any(not re.fullmatch(r"[\x21-\x7e]{16,256}", key) for key in keys):
        raise SettingsError(name, "keys of 16 to 256 printable ASCII characters")
    return keys
