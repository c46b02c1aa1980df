"""A worker that never tires: `python -m tests.support.chaotic_worker SOCKET LOG NAME SEED HANDS`.

Each of its hands says "? PID HAND" in the log and asks for a place, says "+ PID HAND PERMIT" when its job starts, and
"- PID HAND" when it is done, before the place is given back or has another job. The log is opened for appending, so
that its lines stand in the order in which things happened.
"""

import asyncio
import os
import random
import sys

from gate.errors import GateError
from gate_client.places import Places

QUEUES = ["dicom"]


async def hand(places: Places, number: int, log: int, dice: random.Random) -> None:
    def say(sign: str, permit: str = "") -> None:
        os.write(log, f"{sign} {os.getpid()} {number} {permit}\n".encode())

    while True:
        say("?")
        try:
            answer = await places.acquire(QUEUES, timeout=2.0)
        except GateError:
            answer = None
        if answer is None or answer.permit is None:
            await asyncio.sleep(0.01)
            continue
        say("+", answer.permit)
        places.bind(answer.permit, QUEUES[0], "job")
        await asyncio.sleep(dice.uniform(0.005, 0.08))
        say("-")
        places.done(answer.permit)


async def main() -> None:
    socket, path, name, seed, hands = sys.argv[1:]
    log = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    places = Places(name, socket=socket)
    dice = random.Random(seed)
    await asyncio.gather(*(hand(places, number, log, dice) for number in range(int(hands))))


if __name__ == "__main__":
    asyncio.run(main())
