"""Whether a document has every key of the contract, of its type. Keys beyond it are allowed: a
deployment may be newer than whoever checks it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from cli.conformance.promise import Broken, promised
from gateway.header_table import TRUTH, WHOLE

Headers = Mapping[str, tuple[str, str]]


def fits(model: type[BaseModel], document: Any, what: str) -> None:
    """Raises Broken with the first key that is missing or of another type."""
    try:
        model.model_validate_json(json.dumps(document), strict=True)
    except ValidationError as error:
        for fault in error.errors(include_input=False, include_url=False, include_context=False):
            if fault["type"] != "extra_forbidden":
                place = ".".join(str(part) for part in fault["loc"]) or "the whole"
                raise Broken(f"{what}: {{}}: {{}}", place, fault["msg"]) from None


def has_headers(headers: Mapping[str, str], table: Headers, *, but_for: Iterable[str] = ()) -> None:
    """Raises Broken with the first header of the table that is missing or of another kind."""
    for name in table.keys() - set(but_for):
        promised(name in headers, f"the header {name} is missing")
    for name, (kind, _) in table.items():
        if name in headers:
            promised(_is_of(kind, headers[name]), f"the header {name} is no {kind}")


def _is_of(kind: str, value: str) -> bool:
    if kind == WHOLE:
        return value.isascii() and value.isdigit()
    if kind == TRUTH:
        return value in ("true", "false")
    return bool(value)
