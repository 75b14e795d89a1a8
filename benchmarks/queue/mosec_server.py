"""The same model behind mosec, with one worker process and no batching.

python -m benchmarks.queue.mosec_server --address 127.0.0.1 --port <port>
"""

from __future__ import annotations

import json
from typing import Any

from mosec import Server, Worker

from benchmarks.queue.model import speech


class Speech(Worker):  # type: ignore[misc]
    """Takes the JSON of a seed and a number of frames, gives a WAV file."""

    def deserialize(self, data: bytes) -> Any:
        return json.loads(data)

    def forward(self, data: Any) -> bytes:
        return speech(data["seed"], data["frames"])

    def serialize(self, data: bytes) -> bytes:
        return data


if __name__ == "__main__":
    server = Server()
    server.append_worker(Speech, num=1)
    server.run()
