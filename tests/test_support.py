"""The tests' own servers and clocks do what the other tests rely on."""

import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
import redis as redis_py

from tests.support.faketime import FakeTime
from tests.support.redis import RedisServer

START = datetime(2026, 10, 25, 0, 59, 30, tzinfo=UTC)  # half a minute before Europe's repeated hour


@pytest.mark.process
def test_redis_answers_on_both_addresses_and_comes_back_empty(redis_server: RedisServer, redis_url: str) -> None:
    for url in (redis_url, redis_server.unix_url):
        with redis_py.Redis.from_url(url) as client:
            client.set("seen", url)
            redis_server.stop()
            with pytest.raises(redis_py.ConnectionError):
                client.ping()
            redis_server.start()
            assert client.get("seen") is None


@pytest.mark.process
def test_fake_time_runs_fast_and_every_process_is_on_the_same_timeline(
    fake_time: Callable[[datetime, float], FakeTime],
) -> None:
    clock = fake_time(START, 60.0)
    begin = time.monotonic()
    program = "import time; a = time.monotonic(); time.sleep(30); print(time.time(), time.monotonic() - a)"
    seen = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", program], env=clock.env(), check=True, stdout=subprocess.PIPE, text=True
        )
        wall, slept = map(float, done.stdout.split())
        assert slept >= 30
        seen.append(datetime.fromtimestamp(wall, UTC))
    assert START + timedelta(seconds=30) <= seen[0] <= seen[1] - timedelta(seconds=30)
    assert seen[1] <= clock.now()
    assert time.monotonic() - begin < 60, "no faster than the real clock"


@pytest.mark.process
def test_fake_time_may_leave_the_monotonic_clock_real(fake_time: Callable[[datetime, float], FakeTime]) -> None:
    program = "import threading, time; threading.Event().wait(0.01); print(time.time())"
    env = fake_time(START, 1.0).env(fake_monotonic=False)
    done = subprocess.run([sys.executable, "-c", program], env=env, check=True, stdout=subprocess.PIPE, text=True)
    assert START.timestamp() <= float(done.stdout) < START.timestamp() + 3600
