"""Keys and principals: who may call, and whose ids are whose."""

from __future__ import annotations

from contextlib import suppress

import pytest
from starlette.datastructures import Headers
from structlog.testing import capture_logs

from gateway.auth import Principals
from shared.errors import SpeechError
from shared.settings import GatewaySettings
from tests.exposition import samples
from tests.gateway.world import SPEECH, World, gateway_settings

KEYS = ("alpha-key-0123456789", "beta-key-0123456789")
HELLO = {"input": "Hello.", "request_id": "r1"}


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


@pytest.fixture
def settings() -> GatewaySettings:
    """A deployment with two keys."""
    return gateway_settings({"PSIONIC_CSM_API_KEYS": ",".join(KEYS)})


@pytest.mark.parametrize(
    "headers",
    [
        {},
        bearer(""),
        bearer("alpha-key-0123456788"),
        bearer("Alpha-key-0123456789"),
        bearer("alpha-key-0123456789,beta-key-0123456789"),
        {"authorization": "Basic alpha-key-0123456789"},
        {"authorization": KEYS[0]},
        bearer("\xff\xfe"),
    ],
)
async def test_a_wrong_key_is_unauthorized(world: World, headers: dict[str, str]) -> None:
    """Without exactly one known key as a bearer token nothing but probes is answered."""
    answers = [
        await world.refused(HELLO, headers=headers),
        await world.get("/v1/models", headers=headers),
        await world.get("/psionic/csm/load", headers=headers),
        await world.get("/nowhere", headers=headers),
        await world.get("/healthy", headers=headers),
    ]

    assert {(answer.status, answer.code) for answer in answers} == {(401, "unauthorized")}
    assert answers[0].headers["www-authenticate"] == "Bearer"
    assert answers[0].error["type"] == "authentication_error"
    assert not world.redis.keys(world.keys.job("*"))


async def test_an_unauthorized_call_can_be_correlated(world: World) -> None:
    """The refusal repeats the id of its header, and says what serves and what to fall back to."""
    answer = await world.get("/v1/models", headers={"x-psionic-request-id": "r7"})

    assert answer.headers["x-psionic-request-id"] == answer.error["request_id"] == "r7"
    assert answer.headers["x-psionic-csm-failure-code"] == "unauthorized"
    assert answer.error["served_backend"] == "cpu"
    assert answer.error["rollback_target"]


@pytest.mark.parametrize(
    ("method", "path", "route"),
    [
        ("POST", SPEECH, SPEECH),
        ("GET", f"{SPEECH}/r1", f"{SPEECH}/{{request_id}}"),
        ("DELETE", "/v1/models", "/v1/models"),
        ("GET", "/nowhere", "unmatched"),
    ],
)
async def test_a_stranger_is_logged_and_counted_by_route(
    world: World, method: str, path: str, route: str
) -> None:
    """What was refused for its key says which route was asked for, as any other refusal does."""
    with capture_logs() as heard:
        await world.call(method, path, {}).answer()

    (line,) = [each for each in heard if each["event"] == "request"]
    assert (line["route"], line["code"]) == (route, "unauthorized")
    told = samples((await world.get("/metrics")).body)
    assert told["psionic_csm_requests_total", "unauthorized", route, "authentication_error"] == 1


async def test_probes_need_no_key(world: World) -> None:
    """Health and its probes are open, since those who ask have no key."""
    for path in ("/health", "/health/live", "/health/ready"):
        assert (await world.get(path)).status == 200


async def test_each_key_has_ids_of_its_own(world: World) -> None:
    """One caller can't see, replay, cancel or clash with another's ids."""
    call = world.post(HELLO, headers=bearer(KEYS[0]))
    await world.worker.speak(1)
    assert (await call.answer()).status == 200

    other = bearer(KEYS[1])
    seen = await world.get(f"{SPEECH}/r1", headers=other)
    cancel = await world.refused({"request_id": "r1"}, "/psionic/csm/cancellations", headers=other)
    cancelled = await world.refused(HELLO, headers=other)
    own = await world.refused(HELLO, headers=bearer(KEYS[0]))

    assert seen.code == "result_not_found"
    assert cancel.json()["hits"] == []
    assert cancelled.code == "cancelled"
    assert own.headers["x-psionic-csm-replayed"] == "true"


async def test_nobody_reaches_another_s_request_by_any_route(world: World) -> None:
    """While it runs and once it has ended: not seen, not heard, not judged, not attached to, not
    cancelled by its id or its turn; and the same id is free for the other.
    """
    mine, other = bearer(KEYS[0]), bearer(KEYS[1])
    body = {**HELLO, "cancellation_id": "turn"}
    call = world.post(body, headers=mine)
    claim = await world.worker.claim()
    paths = (f"{SPEECH}/r1", f"{SPEECH}/r1/audio", "/psionic/csm/evidence/r1")

    async def unreachable() -> None:
        assert {(await world.get(path, headers=other)).code for path in paths} == {
            "result_not_found"
        }
        judged = await world.refused(
            {"outcome": "accepted"}, "/psionic/csm/evidence/r1/outcome", headers=other
        )
        assert judged.code == "result_not_found"
        for named in ({"cancellation_id": "turn"}, {"request_id": "r1"}):
            cancel = await world.refused(named, "/psionic/csm/cancellations", headers=other)
            assert cancel.json() == {"hits": [], "remembered": True}

    await unreachable()
    world.worker.post(claim, 0)
    assert world.worker.verdict(claim) == "ok"
    world.worker.end(claim, 1)
    assert (await call.answer()).status == 200
    await unreachable()
    assert (await world.get(paths[1], headers=mine)).status == 200

    again = world.post({**body, "cancellation_id": "other"}, headers=bearer(KEYS[1]))
    assert (await again.answer()).code == "cancelled"  # by the other's own cancel of that id


async def test_the_other_s_id_is_the_other_s_own(world: World) -> None:
    """Two callers with one id, one text or two: two generations, each its own caller's."""
    first = world.post(HELLO, headers=bearer(KEYS[0]))
    second = world.post({**HELLO, "input": "Bye."}, headers=bearer(KEYS[1]))
    claims = [await world.worker.claim(), await world.worker.claim()]
    for claim in claims:
        world.worker.post(claim, 0)
        world.worker.end(claim, 1)

    assert {claim.job.input for claim in claims} == {"Hello.", "Bye."}
    for call in (first, second):
        answer = await call.answer()
        assert answer.status == 200
        assert "x-psionic-csm-replayed" not in answer.headers


def test_a_key_is_compared_with_all_in_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Digests of one length, every one of them, whether or not one has matched: time tells
    nothing of a key.
    """
    compared: list[tuple[bytes, bytes]] = []

    def watched(given: bytes, known: bytes) -> bool:
        compared.append((given, known))
        return given == known

    monkeypatch.setattr("gateway.auth.hmac.compare_digest", watched)
    principals = Principals(KEYS)
    for key in (*KEYS, "x", "x" * 1000):
        compared.clear()
        with suppress(SpeechError):
            principals.identify(Headers(bearer(key)))
        assert len(compared) == len(KEYS)
        assert {len(each) for pair in compared for each in pair} == {32}


async def test_no_key_is_kept_in_redis(world: World) -> None:
    """Redis knows a principal by a digest."""
    call = world.post(HELLO, headers=bearer(KEYS[0]))
    claim = await world.worker.claim()

    everything = str(world.redis.keys("*")) + str(world.redis.hgetall(world.keys.job(claim.job_id)))

    assert KEYS[0] not in everything
    assert KEYS[0][:10] not in everything
    await call.hang_up()


def test_without_keys_everybody_is_the_same() -> None:
    """An open deployment has one principal, whatever a caller sends."""
    assert Principals(()).identify(Headers(bearer("x"))) == "open"


def test_a_principal_is_short_and_stable() -> None:
    """The same key is the same principal in every process."""
    first, second = (Principals(KEYS).identify(Headers(bearer(KEYS[0]))) for _ in range(2))

    assert first == second
    assert len(first) == 16
    with pytest.raises(SpeechError):
        Principals(KEYS).identify(Headers({}))
