"""Each gateway says how many callers wait with it."""

from __future__ import annotations

from scheduler.load import GatewayLoad
from tests.conftest import until
from tests.scheduler.conftest import Deployment


async def published(deployment: Deployment) -> list[tuple[str, int]]:
    gateways = (await deployment.load.snapshot()).gateways
    return [(each.gateway_id, each.waiting_callers) for each in gateways]


async def test_a_gateway_says_how_many_wait_with_it_and_that_none_does(
    deployment: Deployment,
) -> None:
    """From its start on, in the renewal that it makes anyway, and no more once it has closed."""
    deployment.worker()
    listeners = deployment.listeners
    listeners.start()
    await until(lambda: bool(deployment.redis.exists(deployment.keys.gateway("g1"))))
    assert await published(deployment) == [("g1", 0)]

    for number in range(3):
        await deployment.join(f"r{number}")
    await listeners._renew_all()
    assert await published(deployment) == [("g1", 3)]

    await listeners.close()
    assert await published(deployment) == []
    assert not deployment.redis.exists(deployment.keys.gateway("g1"), deployment.keys.gateways)


async def test_a_gateway_that_died_is_forgotten(deployment: Deployment) -> None:
    """What it said of itself lapses with its memberships."""
    await deployment.listeners._renew_all()

    deployment.advance_ms(deployment.settings.listener_ttl_ms + 100)

    assert await published(deployment) == []
    assert not deployment.redis.exists(deployment.keys.gateway("g1"), deployment.keys.gateways)


async def test_the_age_of_what_a_gateway_said_is_told(fake: Deployment) -> None:
    """Two seconds later, it is two seconds old."""
    await fake.listeners._renew_all()
    fake.advance_ms(2000)

    gateway = (await fake.load.snapshot()).gateways[0]

    assert gateway.gateway_id == "g1"
    assert 2000 <= gateway.age_ms < 60_000
    assert isinstance(gateway, GatewayLoad)
