"""`python -m tests.fuzz.codec`: atheris looks for bytes that the codec does not stand, until it is interrupted.

Arguments are those of libFuzzer, such as -max_total_time=600; new finds of interest go to a folder that is named first.
atheris is no dependency of ours: pip install atheris. The suite runs the same target over `seeds`, and over what
hypothesis makes.
"""

import importlib
import json
import sys
from pathlib import Path

from gate.interface import Done
from gate.wire import ServerProtocol

SEEDS = Path(__file__).parent / "seeds"


def one(data: bytes) -> None:
    """Bytes of a peer in two pieces, the first as long as the first byte says: only answers, or an end, come of them.

    Raises whatever the codec does not stand.
    """
    protocol = ServerProtocol()
    cut = 1 + (data[0] if data else 0)
    for piece in (data[1:cut], data[cut:]):
        for slot in protocol.receive(piece):
            if not slot.done:
                protocol.reply(slot, Done())
    *messages, rest = protocol.take().split(b"\0")
    assert rest == b""
    for message in messages:
        assert json.loads(message).keys() <= {"parameters", "error"}


def main() -> None:
    try:
        atheris = importlib.import_module("atheris")
    except ImportError:
        sys.exit("atheris is not installed: pip install atheris (CPython on Linux)")
    atheris.instrument_all()
    atheris.Setup([*sys.argv, str(SEEDS)], one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
