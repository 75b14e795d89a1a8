"""The OpenAPI document: valid, whole, and true of what the service answers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from openapi_spec_validator import OpenAPIV31SpecValidator
from schemathesis import checks
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from gateway.formats import CONTENT_TYPES, PLAIN_FORMATS
from gateway.header_table import CALL, FAILURE, IDS, RESULT, STREAM
from gateway.openapi import document
from gateway.schema import SpeechRequest
from shared.errors import CODES
from tests.gateway.served import Service, served
from tests.gateway.world import SPEECH, World, gateway_settings

GOLDEN = Path(__file__).parent / "openapi.golden.json"
SETTINGS = gateway_settings()
DOCUMENT = document(SETTINGS, tuple(CONTENT_TYPES))
HELLO = {"input": "Hello.", "request_id": "r1"}
SERVED_BY_SERVER = {"content-length", "date", "content-type", "server"}

schema = schemathesis.openapi.from_dict(DOCUMENT)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with served(tmp_path_factory.mktemp("served"), SETTINGS) as service:
        yield service


@pytest.fixture(scope="module")
def session() -> Iterator[requests.Session]:
    with requests.Session() as session:
        session.trust_env = False
        yield session


@schema.parametrize()
@settings(
    max_examples=10,
    derandomize=True,
    deadline=None,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_every_answer_is_as_declared(
    case: schemathesis.Case[Any], service: Service, session: requests.Session
) -> None:
    """Whatever is sent, the status is declared, and the answer fits what is declared for it."""
    response = case.call(base_url=service.url, session=session, timeout=20)

    case.validate_response(
        response,
        checks=[
            checks.not_a_server_error,
            status_code_conformance,
            content_type_conformance,
            response_headers_conformance,
            response_schema_conformance,
            negative_data_rejection,
        ],
    )


def test_the_document_is_valid() -> None:
    """It is OpenAPI 3.1, by the specification's own schema."""
    OpenAPIV31SpecValidator(DOCUMENT).validate()


def outline(spec: dict[str, Any]) -> dict[str, Any]:
    """Operations with their statuses, codes and content, and schemas with their fields."""
    operations = {
        f"{method.upper()} {path}": {
            status: [
                *sorted(answer["content"]),
                *(["codes: " + answer["description"]] if status[0] in "45" else []),
            ]
            for status, answer in operation["responses"].items()
        }
        for path, methods in spec["paths"].items()
        for method, operation in methods.items()
    }
    schemas = {
        name: sorted(each.get("properties", {}))
        for name, each in spec["components"]["schemas"].items()
    }
    return {"operations": operations, "schemas": schemas}


def test_the_document_has_the_outline_that_was_agreed() -> None:
    """A change of the contract is a change of the golden file, seen in review. To accept one:
    ``python -m tests.gateway.test_openapi``."""
    assert outline(DOCUMENT) == json.loads(GOLDEN.read_text(encoding="utf-8"))


def test_every_code_is_declared_somewhere() -> None:
    """But for the two that belong to no path of the document, whose description names them."""
    declared = {
        code
        for methods in DOCUMENT["paths"].values()
        for operation in methods.values()
        for status, answer in operation["responses"].items()
        if status[0] in "45" and answer["description"] not in ("no",)
        for code in answer["description"].split(", ")
    }

    elsewhere = CODES.keys() - declared
    assert elsewhere == {"route_not_found", "method_not_allowed"}
    assert all(code in DOCUMENT["info"]["description"] for code in elsewhere)


def test_every_route_is_declared(world: World) -> None:
    """The paths and methods of the document are those of the application."""
    routes = {
        (route.path, method.lower())
        for route in world.gateway.app.routes
        for method in route.methods
        if method != "HEAD"
    }

    assert routes == {(path, m) for path, methods in DOCUMENT["paths"].items() for m in methods}


async def test_a_gateway_tells_what_it_serves(world: World) -> None:
    """Formats, names and bounds in the document are this gateway's own."""
    told = (await world.get("/openapi.json")).json()
    bare = document(gateway_settings({"PSIONIC_CSM_MODEL_ALIASES": "b"}), PLAIN_FORMATS)

    assert told == DOCUMENT
    content = bare["paths"][SPEECH]["post"]["responses"]["200"]["content"]
    assert {name for name in content if name.startswith("audio/")} == {"audio/wav", "audio/pcm"}
    properties = bare["components"]["schemas"]["SpeechRequest"]["properties"]
    assert properties.keys() == SpeechRequest.model_fields.keys()
    assert properties["response_format"]["anyOf"][0]["enum"] == list(PLAIN_FORMATS)
    assert properties["model"]["anyOf"][0]["enum"] == ["sesame/csm-1b", "b"]
    assert bare["security"] == []


def test_keys_are_declared_where_they_are_needed() -> None:
    """With keys set, all but probes and metrics need one."""
    keyed = document(gateway_settings({"PSIONIC_CSM_API_KEYS": "k" * 16}), PLAIN_FORMATS)

    assert keyed["security"] == [{"bearer": []}]
    public = {
        path for path, each in keyed["paths"].items() if each.get("get", {}).get("security") == []
    }
    assert public == {"/health", "/health/live", "/health/ready", "/metrics", "/console"}


async def test_no_header_is_undeclared(world: World) -> None:
    """What whole answers, streams, results and refusals send is in the table, and all of that is
    sent by one of them."""
    whole = world.post({**HELLO, "cancellation_id": "c1", "voice_turn_budget_ms": 1})
    claim = await world.worker.claim()
    world.worker.post(claim, 0)
    world.worker.end(claim, 1, cpu_fallback_reason="no device")
    answers = [await whole.answer()]
    stream = world.post({**HELLO, "stream": True, "cancellation_id": "c1"})
    answers.append(await stream.answer())
    audio = await world.get(SPEECH + "/r1/audio")
    refused = await world.refused({**HELLO, "input": ""})
    spoken = [set(answer.headers) - SERVED_BY_SERVER for answer in answers]

    assert spoken[0] <= {*CALL, *RESULT}
    assert spoken[1] <= {*CALL, *STREAM}
    assert spoken[0] | spoken[1] == {*CALL, *RESULT, *STREAM}
    assert set(audio.headers) - SERVED_BY_SERVER <= {*IDS, *RESULT}
    assert set(refused.headers) - SERVED_BY_SERVER <= FAILURE.keys()


if __name__ == "__main__":
    GOLDEN.write_text(json.dumps(outline(DOCUMENT), indent=1) + "\n", encoding="utf-8")
