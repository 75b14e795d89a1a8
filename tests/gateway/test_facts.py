"""Live facts: one read for all who ask, and labels that hold nobody up."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from gateway.facts import Facts
from gateway.runtime import UNSERVED
from scheduler.load import LoadSnapshot
from shared.errors import SpeechError
from tests.gateway.artifacts import write_artifact
from tests.gateway.world import worker_document


class SlowLoad:
    """A load that answers when told to."""

    def __init__(self, answer: LoadSnapshot | SpeechError) -> None:
        self.answer = answer
        self.reads = 0
        self.go = asyncio.Event()

    async def snapshot(self) -> LoadSnapshot:
        self.reads += 1
        await self.go.wait()
        if isinstance(self.answer, SpeechError):
            raise self.answer
        return self.answer


def over(load: Any) -> Facts:
    return Facts(load)


async def test_all_who_ask_share_one_read() -> None:
    """However many ask while a read is under way, there is one."""
    load = SlowLoad(LoadSnapshot())
    known = over(load)
    asking = [asyncio.create_task(known.snapshot()) for _ in range(10)]
    await asyncio.sleep(0)
    load.go.set()

    assert await asyncio.gather(*asking) == [load.answer] * 10
    assert load.reads == 1


async def test_a_fresh_read_serves_those_who_come_later() -> None:
    """A moment later nobody reads again; when the moment is over, the next one does."""
    load = SlowLoad(LoadSnapshot())
    load.go.set()
    known = over(load)

    for _ in range(3):
        await known.snapshot()
    assert load.reads == 1

    known.fresh_ms = 0.0
    await known.snapshot()
    assert load.reads == 2


async def test_all_who_ask_hear_of_a_failure_together() -> None:
    """Nobody waits for his turn to find out that Redis is away."""
    load = SlowLoad(SpeechError("queue_unavailable", "away"))
    known = over(load)
    asking = [asyncio.create_task(known.snapshot()) for _ in range(10)]
    await asyncio.sleep(0)
    load.go.set()

    heard = await asyncio.gather(*asking, return_exceptions=True)

    assert {str(each) for each in heard} == {"queue_unavailable: away"}
    assert load.reads == 1


async def test_one_who_leaves_does_not_stop_the_others() -> None:
    """A caller that is cancelled takes only itself away from the read."""
    load = SlowLoad(LoadSnapshot())
    known = over(load)
    first, second = (asyncio.create_task(known.snapshot()) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.sleep(0)
    load.go.set()

    assert await second == load.answer


async def test_a_label_is_not_waited_for(tmp_path: Path) -> None:
    """With Redis hung, an answer leaves without knowing what is served."""
    known = over(SlowLoad(LoadSnapshot()))
    known.label_wait_s = 0.02

    assert await known.served(write_artifact(tmp_path)) == UNSERVED
    await known.close()


async def test_the_speaking_worker_is_named(tmp_path: Path) -> None:
    """Of several workers, the label is that of the one that speaks, also while it drains."""
    artifact = write_artifact(tmp_path)
    workers = (
        worker_document(artifact),
        worker_document(artifact, worker_id="w2", state="draining", served_backend="cuda"),
    )
    load = SlowLoad(LoadSnapshot(workers=workers))
    load.go.set()
    known = over(load)

    assert (await known.served(artifact, "w2")).backend == "cuda"
    assert (await known.served(artifact)).backend == "cpu"
    assert (await known.served(artifact, "gone")).backend == "cpu"
