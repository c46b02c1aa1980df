"""Log lines: for people on a terminal, or one JSON object each (`--log json`).

Fields travel as `extra=`; both forms show them, instants as RFC 3339.
"""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    return {
        name: value.isoformat().replace("+00:00", "Z") if isinstance(value, datetime) else value
        for name, value in vars(record).items()
        if name not in _STANDARD
    }


def _one_line(value: object) -> str:
    """What a peer names itself begins no line of its own and colours no terminal."""
    text = str(value)
    return text if text.isprintable() else repr(text)


class Human(logging.Formatter):
    """`12:00:00.123 warning send  in doubt: ...  schedule=nightly`."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, and the traceback if there is one."""
        when = datetime.fromtimestamp(record.created, UTC).astimezone().strftime("%H:%M:%S.%f")[:-3]
        fields = "".join(f"  {name}={_one_line(value)}" for name, value in _fields(record).items())
        area = record.name.removeprefix("gate.")
        trace = f"\n{self.formatException(record.exc_info)}" if record.exc_info else ""
        return f"{when} {record.levelname.lower():7} {area:7} {record.getMessage()}{fields}{trace}"


class Json(logging.Formatter):
    """One JSON object per line: time, level, area, message, and the fields."""

    def format(self, record: logging.LogRecord) -> str:
        """One object; a traceback goes into the field `trace`."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat().replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "area": record.name.removeprefix("gate."),
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str, ensure_ascii=False)


def set_up(form: str, level: str) -> None:
    """Log to stderr in the given form ("human" or "json"), from `level` upwards."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Json() if form == "json" else Human())
    root = logging.getLogger("gate")
    root.handlers[:] = [handler]
    root.propagate = False
    root.setLevel(level.upper())
