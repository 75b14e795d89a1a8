"""What a deployment says as a report may say it: without the texts and the key of its caller."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

WITHHELD: Final = "(withheld)"
MOST_SHOWN: Final = 120


def withheld(value: Any, secrets: Sequence[str]) -> Any:
    """The value, with a word in the place of each part of it that holds a secret."""
    if isinstance(value, Mapping):
        if any(_holds(name, secrets) for name in value):
            return WITHHELD
        return {name: withheld(each, secrets) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [withheld(each, secrets) for each in value]
    return WITHHELD if _holds(value, secrets) else value


def shown(value: Any, secrets: Sequence[str] = ()) -> str:
    """The value in a line of a report: short and printable.

    Secrets are looked for in the value as it came: what is cut off or escaped may end within one.
    """
    safe = withheld(value, secrets)
    text = safe if isinstance(safe, str) else repr(safe)
    text = "".join(letter if letter.isprintable() else "?" for letter in text)
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}..."


def _holds(value: Any, secrets: Sequence[str]) -> bool:
    """Also where it is JSON, in which a quote or a backslash of a secret is escaped."""
    text = value.decode("latin-1") if isinstance(value, bytes) else str(value)
    return any(form in text for secret in secrets for form in (secret, json.dumps(secret)[1:-1]))
