"""What `gatectl status` shows of limits, places and those who wait."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from click.testing import CliRunner

from gate.ctl import limits, output
from gate.interface import PlaceInfo, PoolInfo, WaitingInfo

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


@pytest.fixture(autouse=True)
def in_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")


def ago(minutes: int) -> datetime:
    return NOW - timedelta(minutes=minutes)


def place(permit: str, **fields: Any) -> PlaceInfo:
    given: dict[str, Any] = {
        "worker": "transfer-1",
        "queue": "dicom",
        "job": "send[17]",
        "since": ago(3),
        "pid": 4711,
    } | fields
    return PlaceInfo(permit=permit, **given)


def pool(name: str, limit: int | None, places: list[PlaceInfo], **fields: Any) -> PoolInfo:
    given: dict[str, Any] = {"reason": f"limit {limit} by else", "until": None, "taken": len(places), "waiting": []}
    return PoolInfo(pool=name, limit=limit, places=places, **(given | fields))


def shown(*pools: PoolInfo) -> list[str]:
    """The part about limits, line by line, as it is in a pipe, with single spaces."""
    with CliRunner().isolation() as (stdout, _, _):
        output.show(*limits.parts(pools, NOW))
        text = stdout.getvalue().decode()
    return [re.sub(" +", " ", line) for line in text.splitlines() if line]


def test_without_limits_nothing_is_shown() -> None:
    assert shown() == []


def test_a_limit_its_places_and_who_waits() -> None:
    waiting = [WaitingInfo(worker="transfer-2", since=ago(1), pid=4712)]
    lines = shown(
        pool("rule dicom", 2, [place("a"), place("b", worker="copy\x1b", queue=None, job=None)], waiting=waiting,
             until=NOW + timedelta(hours=8)),
        pool("rule bulk", None, [], reason="no limit any more"),
    )  # fmt: skip
    assert lines == [
        "limits: 2",
        "limit of taken limit until (UTC) why",
        "rule dicom 2 2 20:00 limit 2 by else",
        "rule bulk 0 none no known change no limit any more",
        "places taken: 2",
        "worker queue job limit of since pid",
        "transfer-1 dicom send[17] rule dicom 11:57 (3m ago) 4711",
        "copy\\x1b reserved rule dicom 11:57 (3m ago) 4711",
        "waiting for a place: 1",
        "worker limit of since pid",
        "transfer-2 rule dicom 11:59 (1m ago) 4712",
    ]


def test_a_job_that_counts_in_two_limits_is_one_line() -> None:
    waiter = WaitingInfo(worker="transfer-2", since=ago(1), pid=4712)
    lines = shown(
        pool("rule dicom", 1, [place("a")], waiting=[waiter]),
        pool("resource pacs-1", 2, [place("a"), place("b", worker="other")], waiting=[waiter]),
    )
    places = lines[lines.index("places taken: 2") :]
    assert [row for row in places if "transfer-1" in row] == [
        "transfer-1 dicom send[17] rule dicom, resource pacs-1 11:57 (3m ago) 4711"
    ]
    assert "waiting for a place: 1" in places
