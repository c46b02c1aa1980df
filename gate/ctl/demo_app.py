"""What `gatectl demo` gives to a real `taskiq scheduler`: one task that is due every minute, and two schedulers for it.

The broker is the demo's own: it appends each task that is sent to the file that $GATE_DEMO_RECORD names.
"""

import json
import os
from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from typing import NoReturn

from taskiq import AsyncBroker, BrokerMessage, TaskiqScheduler
from taskiq.schedule_sources import LabelScheduleSource

from taskiq_gate import GatedScheduleSource


class RecordingBroker(AsyncBroker):
    """Sends by writing a line."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path

    async def kick(self, message: BrokerMessage) -> None:
        line = json.dumps({"sent": datetime.now(UTC).isoformat(), "task_id": message.task_id})
        file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(file, f"{line}\n".encode())
        finally:
            os.close(file)

    async def listen(self) -> AsyncGenerator[NoReturn, None]:
        """Nobody works on what the demo sends."""
        return
        yield


broker = RecordingBroker(os.environ["GATE_DEMO_RECORD"])


@broker.task(task_name="heartbeat", schedule=[{"cron": "* * * * *"}])
async def heartbeat() -> None:
    """Due every minute."""


ungated = TaskiqScheduler(broker, sources=[LabelScheduleSource(broker)])
gated = TaskiqScheduler(broker, sources=[GatedScheduleSource(LabelScheduleSource(broker), name="demo")])
