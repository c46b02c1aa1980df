"""gate/metrics.py and `gatectl metrics`: a status as Prometheus metrics, against a real gate."""

import json
import re
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gate import metrics
from gate.interface import instant, rfc3339
from tests.support.gate_process import GateProcess
from tests.support.gatectl import COMMAND, ROOT, gatectl

CONFIG = """
timezone = "UTC"
[[fetch]]
name = "dicom"
at_once = 3
[[fetch]]
name = "never"
queues = ["never"]
open = ["2020-01-01 12:00 .. 2020-01-02 12:00"]
[[send]]
schedules = ["paused"]
pause = ["daily 00:00-24:00"]
"""
MINUTE = rfc3339(datetime.now(UTC).replace(second=0, microsecond=0))
PATIENCE = 30.0


def samples(text: str) -> dict[str, float]:
    """Every series of a scrape, as it stands there, and its value."""
    return {
        sample.name + "".join(f"{{{key}={value}}}" for key, value in sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_a_gate_that_does_not_answer() -> None:
    assert samples(metrics.text(None)) == {"schedule_gate_up": 0}


pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GateProcess]:
    with GateProcess(tmp_path_factory.mktemp("gate"), config=CONFIG) as gate, gate.client() as client:
        token = client.claim('a "quoted"\\name', MINUTE)["token"]
        client.call("Send.Confirm", token=token)
        assert client.claim('a "quoted"\\name', MINUTE)["decision"] == "sent"
        assert client.claim("paused", MINUTE)["decision"] == "paused"
        assert client.call("Fetch.Acquire", worker="w", queues=["dicom"], session="s")["permit"]
        yield gate


@pytest.fixture(autouse=True)
def at_its_socket(gate: GateProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATE_SOCKET", str(gate.socket))


def test_a_scrape_says_what_status_says(gate: GateProcess) -> None:
    result = gatectl("metrics")
    assert (result.exit_code, result.stderr) == (0, "")
    said, status = samples(result.stdout), json.loads(gatectl("status", "--json").stdout)
    quoted = '{schedule=a "quoted"\\name}'
    expected = {
        "up": 1,
        "store_healthy": 1,
        "config_valid": 1,
        "answers_total{decision=send}": 1,
        "answers_total{decision=sent}": 1,
        "answers_total{decision=paused}": 1,
        "schedules": 2,
        "in_doubt": 0,
        "missed": 1,
        f"schedule_sent_total{quoted}": 1,
        f"schedule_refused_total{quoted}": 1,
        f"schedule_newest_timestamp_seconds{quoted}": instant(MINUTE).timestamp(),
        "schedule_missed_total{schedule=paused}": 1,
        "schedule_paused{schedule=paused}": 1,
        f"schedule_paused{quoted}": 0,
        "rule_open{rule=dicom}": 1,
        "rule_open{rule=never}": 0,
        "places_limit{pool=rule dicom}": 3,
        "places_taken{pool=rule dicom}": 1,
        "places_waiting{pool=rule dicom}": 0,
        "start_timestamp_seconds": pytest.approx(instant(status["started"]).timestamp()),
    }
    assert {name: said.get(f"schedule_gate_{name}") for name in expected} == expected
    build = f"{{store=sqlite}}{{tzdata={status['tzdata']['version']}}}{{version={status['version']}}}"
    assert said["schedule_gate_build_info" + build] == 1


def test_names_follow_prometheus() -> None:
    """Lower case, what they count in base units, and a sentence of help for each."""
    for family in text_string_to_metric_families(gatectl("metrics").stdout):
        assert re.fullmatch(r"schedule_gate_[a-z_]+", family.name)
        assert family.documentation.endswith(".")
        assert family.type in ("gauge", "counter")


def test_without_a_gate_it_ends_with_three(tmp_path: Path) -> None:
    result = gatectl("metrics", "--socket", str(tmp_path / "nobody"))
    assert (result.exit_code, result.stdout) == (3, "")
    assert "cannot be reached" in result.stderr


@pytest.mark.parametrize("address", ["9464", "localhost:http", "127.0.0.1:65536", ":", "192.0.2.1:9464"])
def test_an_address_that_cannot_be(address: str) -> None:
    result = gatectl("metrics", "--listen", address)
    assert result.exit_code == 2
    assert f"--listen {address}: " in result.stderr


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=PATIENCE) as reply:
        assert reply.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        return str(reply.read().decode())


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
def test_serving_scrapes_with_and_without_a_gate(tmp_path: Path, stop: signal.Signals) -> None:
    exporter = subprocess.Popen(
        [*COMMAND, "metrics", "--socket", str(tmp_path / "gate.sock"), "--listen", "127.0.0.1:0"],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert exporter.stderr is not None
    with exporter:
        try:
            said = exporter.stderr.readline()
            found = re.fullmatch(r"metrics at (http://127\.0\.0\.1:\d+/metrics)\n", said)
            assert found, said
            assert samples(get(found[1])) == {"schedule_gate_up": 0}
            with GateProcess(tmp_path) as gate:
                assert gate.socket == tmp_path / "gate.sock"
                assert samples(get(found[1]))["schedule_gate_up"] == 1
            assert samples(get(found[1])) == {"schedule_gate_up": 0}
            with pytest.raises(urllib.error.HTTPError, match="404"):
                get(found[1].replace("/metrics", "/else"))
            exporter.send_signal(stop)
            assert exporter.wait(PATIENCE) == 0
            assert exporter.stderr.read() == ""
        finally:
            exporter.kill()
