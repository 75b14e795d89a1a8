"""What the command line makes of a gateway's answers and silences."""

from __future__ import annotations

import json
from collections.abc import Callable

import httpx
import pytest

from cli.client import GatewayClient, api_key_from
from cli.exits import NOT_GENUINE, REFUSED, UNREACHABLE, USAGE, CommandFailed

Answer = Callable[[httpx.Request], httpx.Response]


def gateway(answer: Answer, *, api_key: str | None = None) -> GatewayClient:
    return GatewayClient("http://gateway", api_key=api_key, transport=httpx.MockTransport(answer))


def envelope(status: int, headers: dict[str, str] | None = None, **error: object) -> Answer:
    whole = {"message": "no", "type": "t", "retryable": False, **error}
    return lambda _: httpx.Response(status, json={"error": whole}, headers=headers or {})


def test_a_refusal_tells_code_message_parameter_and_request() -> None:
    """All that helps a person to correct the request is in the lines of the failure."""
    answer = envelope(
        400,
        code="invalid_seed",
        message="seed: 0 to 2^53-1",
        type="invalid_request_error",
        param="seed",
        request_id="r-1",
    )

    with gateway(answer) as client, pytest.raises(CommandFailed) as caught:
        client.speak({"input": "hi"})

    failed = caught.value
    assert failed.exit_code == REFUSED
    assert failed.lines[0] == "error: invalid_seed: seed: 0 to 2^53-1"
    assert "  parameter seed" in failed.lines
    assert "  request id r-1" in failed.lines
    assert failed.hint is None


@pytest.mark.parametrize(("headers", "words"), [({"retry-after": "3"}, "3 s"), ({}, "later")])
def test_a_retryable_refusal_says_when_to_try_again(headers: dict[str, str], words: str) -> None:
    """Retry-After becomes the hint; without it the hint only says that a retry makes sense."""
    answer = envelope(429, headers, code="queue_full", retryable=True)

    with gateway(answer) as client, pytest.raises(CommandFailed) as caught:
        client.speak({"input": "hi"})

    assert caught.value.hint is not None
    assert words in caught.value.hint


def test_a_missing_key_says_where_to_give_it() -> None:
    """401 hints at the option and the variable."""
    with (
        gateway(envelope(401, code="unauthorized")) as client,
        pytest.raises(CommandFailed) as caught,
    ):
        client.load()

    assert "--api-key" in (caught.value.hint or "")


def test_something_else_behind_the_address_is_told() -> None:
    """A server that is no gateway is named as such, whatever it answers."""
    for answer in (httpx.Response(502, text="<html>"), httpx.Response(200, json=[1])):
        with gateway(lambda _, a=answer: a) as client, pytest.raises(CommandFailed) as caught:  # type: ignore[misc]
            client.load()
        assert caught.value.exit_code == REFUSED


@pytest.mark.parametrize("error", [httpx.ConnectError("refused"), httpx.ReadTimeout("slow")])
def test_silence_is_unreachable(error: httpx.TransportError) -> None:
    """A gateway that can't be reached, or does not answer, has an exit code of its own."""

    def fail(_: httpx.Request) -> httpx.Response:
        raise error

    with gateway(fail) as client:
        with pytest.raises(CommandFailed) as caught:
            client.health()
        assert caught.value.exit_code == UNREACHABLE
        assert not client.is_ready()


def test_the_key_travels_as_a_bearer_token() -> None:
    """The key is sent with every request, and none when there is none."""
    seen: list[str | None] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers.get("authorization"))
        return httpx.Response(200, json={})

    with gateway(answer, api_key="k" * 16) as client:
        client.health()
    with gateway(answer) as client:
        client.health()

    assert seen == [f"Bearer {'k' * 16}", None]


def test_a_stream_ends_with_its_terminal() -> None:
    """Events come one by one, the terminal last; the request asks for JSONL."""
    events = [{"event": "start"}, {"event": "audio"}, {"event": "terminal"}]
    asked: list[dict[str, object]] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(json.loads(request.content))
        return httpx.Response(200, text="".join(json.dumps(event) + "\n" for event in events))

    with gateway(answer) as client:
        assert list(client.stream({"input": "hi"})) == events
    assert asked == [{"input": "hi", "stream": True, "stream_format": "jsonl_base64"}]


@pytest.mark.parametrize("body", ['{"event": "start"}\n', "", "not json\n", "[]\n"])
def test_a_broken_stream_is_told(body: str) -> None:
    """A stream without a terminal, or with something else in it, is not taken for an answer."""
    with (
        gateway(lambda _: httpx.Response(200, text=body)) as client,
        pytest.raises(CommandFailed) as caught,
    ):
        list(client.stream({"input": "hi"}))

    assert caught.value.exit_code == NOT_GENUINE


def test_a_refused_stream_is_a_refusal() -> None:
    """A stream that never begins carries the envelope like any other refusal."""
    with (
        gateway(envelope(503, code="no_ready_worker", retryable=True)) as client,
        pytest.raises(CommandFailed) as caught,
    ):
        list(client.stream({"input": "hi"}))

    assert caught.value.code == "no_ready_worker"


@pytest.mark.parametrize(
    "url",
    [
        "",
        "ftp://host",
        "http://",
        "http://host:99999",
        "http://host:x",
        "http://[::1",
        "http://a b",
        "http://a..b",
        "http://" + "a" * 64,
    ],
)
def test_a_malformed_address_is_wrong_usage(url: str) -> None:
    """An address that can't be one is refused before anything is sent."""
    with pytest.raises(CommandFailed) as caught:
        GatewayClient(url)

    assert caught.value.exit_code == USAGE


def test_a_proxy_is_not_asked_for_the_own_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """HTTP_PROXY does not come between the command and a gateway on the loopback interface."""
    trusted: list[bool] = []
    real = httpx.Client

    def spy(*args: object, trust_env: bool, **kwargs: object) -> httpx.Client:
        trusted.append(trust_env)
        return real(*args, trust_env=trust_env, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(httpx, "Client", spy)
    for url in ("http://127.0.0.1:1", "http://localhost:1", "http://[::1]:1", "http://far.example"):
        with GatewayClient(url):
            pass

    assert trusted == [False, False, False, True]


def test_the_caller_s_key_comes_first_then_the_gateway_s() -> None:
    """PSIONIC_CSM_API_KEY is the caller's; on the gateway's machine its own first key serves."""
    keys = "first-key-0123456789,second-key-0123456789"

    assert api_key_from({"PSIONIC_CSM_API_KEY": "mine", "PSIONIC_CSM_API_KEYS": keys}) == "mine"
    assert api_key_from({"PSIONIC_CSM_API_KEYS": keys}) == "first-key-0123456789"
    assert api_key_from({}) is None
    assert api_key_from({"PSIONIC_CSM_API_KEYS": "short"}) is None
