"""Runs inside a booted systemd, as root, with the system's own Python: one check after the other.

Prints a line of JSON for each: its name, whether it held, and what was seen.
"""

import json
import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HOME = Path("/opt/schedule-gate")
SOCKET = "/run/gate/gate.sock"
CONFIG = Path("/etc/gate/gate.toml")
PATIENCE = 20.0
LATER = "99.1"
"""The version of the second wheel."""
GOOD = 'timezone = "UTC"\n[[fetch]]\nname = "dicom"\nopen = ["daily 00:00-24:00"]\n'
MINUTE = time.strftime("%Y-%m-%dT%H:%M:00Z", time.gmtime())


def run(*command: str | Path, check: bool = True, user: str | None = None) -> tuple[int, str]:
    """A command's exit code and all that it wrote."""
    if user is not None:
        command = ("setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups", *command)
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120, check=False
    )
    assert not check or done.returncode == 0, f"{command}: {done.returncode}: {done.stdout}"
    return done.returncode, done.stdout.strip()


def call(method: str, **parameters: object) -> dict[str, Any]:
    """One Varlink call."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(PATIENCE)
        sock.connect(SOCKET)
        sock.sendall(json.dumps({"method": method, "parameters": parameters}).encode() + b"\0")
        data = b""
        while b"\0" not in data:
            more = sock.recv(65536)
            assert more, "hung up"
            data += more
    answer: dict[str, Any] = json.loads(data.partition(b"\0")[0])
    return answer


def claim(schedule: str, **more: object) -> dict[str, Any]:
    return call("io.schedulegate.Send.Claim", schedule=schedule, holder="inside", at=MINUTE, **more)


def info() -> dict[str, Any]:
    told: dict[str, Any] = call("org.varlink.service.GetInfo")["parameters"]
    return told


def show(name: str, unit: str = "gate.service") -> str:
    return run("systemctl", "show", "-P", name, unit)[1]


def exposure() -> tuple[float, str]:
    text = run("systemd-analyze", "security", "gate.service", "--no-pager")[1]
    found = re.search(r"exposure level for gate.service: ([0-9.]+)", text)
    assert found, text
    return float(found[1]), text


def until(what: Callable[[], object], patience: float = PATIENCE) -> None:
    """Wait for something to be so."""
    end = time.monotonic() + patience
    while not what():
        assert time.monotonic() < end, f"not in {patience} s"
        time.sleep(0.05)


# -- the checks, in order


def install_wheel(version: str | None) -> None:
    """Ours, or the later one, as pip does it where there is no network."""
    found = {path.name.split("-")[1]: path for path in Path("/opt/app").glob("*.whl")}
    wheel = found[version] if version else next(path for name, path in found.items() if name != LATER)
    pip = ["env", f"PYTHONPATH={HOME}/site", "/usr/bin/python3", "-m", "pip", "--disable-pip-version-check", "install"]
    run(*pip, "--quiet", "--no-index", "--no-deps", "--upgrade", f"--target={HOME}/site", wheel)


def install() -> object:
    shutil.copytree("/opt/app/site", HOME / "site")
    install_wheel(None)
    (HOME / "bin").mkdir()
    for name, module in (("gate", "gate.__main__"), ("gatectl", "gate.ctl.__main__")):
        script = HOME / "bin" / name
        lines = ["#!/usr/bin/python3", "import sys", f"sys.path[:0] = ['{HOME}/site']", f"from {module} import main"]
        script.write_text("\n".join([*lines, "sys.exit(main())", ""]))
        script.chmod(0o755)
    run(HOME / "bin/gatectl", "install-units")
    users = "u member -\nu stranger -\nu steers -\nm member gate-clients\nm steers gate-clients\n"
    Path("/etc/sysusers.d/test.conf").write_text(users)
    run("systemd-sysusers")
    CONFIG.parent.mkdir(exist_ok=True)
    CONFIG.write_text(GOOD + '[control]\nusers = ["steers"]\n')
    run("systemctl", "daemon-reload")
    run("systemctl", "enable", "--now", "gate.socket")
    return run("stat", "-c", "%U:%G %a", SOCKET)[1]


def verify_prints_nothing() -> None:
    units = ["/etc/systemd/system/gate.service", "/etc/systemd/system/gate.socket"]
    text = run("systemd-analyze", "verify", *units, check=False)[1]
    assert text == "", text


def the_first_client_starts_it() -> object:
    assert show("ActiveState") == "inactive"
    begin = time.monotonic()
    product = info()["product"]
    assert (product, show("ActiveState"), show("StatusText")) == ("schedule-gate", "active", "serving")
    return f"{time.monotonic() - begin:.2f} s"


def it_is_not_exposed() -> object:
    level, text = exposure()
    assert level <= 0.4, text
    return level


def claims_go_to_its_own_user_and_folder() -> None:
    assert claim("once")["parameters"]["decision"] == "send"
    assert claim("once")["parameters"]["decision"] == "held"
    state = Path("/var/lib/private/gate")
    assert (state / "gate.db").exists()
    assert oct(state.stat().st_mode)[-3:] == "700"
    pid = int(show("MainPID"))
    assert Path(f"/proc/{pid}").stat().st_uid not in (0, 65534)


def a_stranger_may_not_connect_a_member_may_ask_and_root_and_the_listed_may_steer() -> object:
    ctl = str(HOME / "bin/gatectl")
    code, text = run(ctl, "status", user="stranger", check=False)
    assert (code, "gate-clients" in text) == (3, True), (code, text)
    run(ctl, "status", user="member")
    order = ("close", "dicom", "--for", "1h", "--note", "test")
    code, text = run(ctl, *order, user="member", check=False)
    assert code == 1, (code, text)
    assert "may not" in text or "not allowed" in text or "permission" in text.lower(), text
    run(ctl, *order, user="steers")
    run(ctl, "auto", "dicom")
    uid = pwd.getpwnam("member").pw_uid
    refused = [
        line for line in run("journalctl", "-u", "gate.service", "--no-pager")[1].splitlines() if "refused" in line
    ]
    assert any(str(uid) in line for line in refused), refused
    return refused[-1]


def reload_takes_a_good_file_and_refuses_a_bad_one() -> None:
    CONFIG.write_text(GOOD.replace("dicom", "other") + '[control]\nusers = ["steers"]\n')
    code, _ = run("systemctl", "reload", "gate.service")
    assert code == 0
    rules = [rule["rule"] for rule in call("io.schedulegate.Control.Status")["parameters"]["rules"]]
    assert rules == ["other"], rules
    good = CONFIG.read_text()
    CONFIG.write_text("nonsense = true\n")
    code, text = run("systemctl", "reload", "gate.service", check=False)
    assert code != 0, text
    assert show("ActiveState") == "active"
    assert "not taken over" in show("StatusText"), show("StatusText")
    rules = [rule["rule"] for rule in call("io.schedulegate.Control.Status")["parameters"]["rules"]]
    assert rules == ["other"], rules
    CONFIG.write_text(good)
    run("systemctl", "reload", "gate.service")
    assert show("StatusText") == "serving"


def twenty_calls_across_a_restart_are_answered(name: str = "across") -> object:
    answers: list[str] = []

    def ask(number: int) -> None:
        time.sleep(number * 0.05)
        answers.append(claim(f"{name} {number}")["parameters"]["decision"])

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    time.sleep(0.2)
    begin = time.monotonic()
    run("systemctl", "restart", "gate.service")
    took = time.monotonic() - begin
    for thread in threads:
        thread.join(PATIENCE)
    assert answers == ["send"] * 20, answers
    return f"restart took {took:.2f} s"


def what_was_claimed_and_ordered_survives() -> None:
    token = claim("kept")["parameters"]["token"]
    call("io.schedulegate.Send.Confirm", token=token)
    run(HOME / "bin/gatectl", "close", "other", "--for", "1h", "--note", "kept")
    run("systemctl", "restart", "gate.service")
    assert claim("kept")["parameters"]["decision"] == "sent"
    overrides = call("io.schedulegate.Control.Status")["parameters"]["overrides"]
    assert [one["note"] for one in overrides] == ["kept"]
    run(HOME / "bin/gatectl", "auto", "other")


def a_killed_gate_comes_back() -> object:
    before = int(show("MainPID"))
    os.kill(before, signal.SIGKILL)
    begin = time.monotonic()
    assert claim("kept")["parameters"]["decision"] == "sent"
    assert int(show("MainPID")) != before
    return f"answered after {time.monotonic() - begin:.2f} s"


def the_watchdog_ends_a_gate_that_hangs() -> None:
    drop_in = Path("/run/systemd/system/gate.service.d/watchdog.conf")
    drop_in.parent.mkdir(parents=True, exist_ok=True)
    drop_in.write_text("[Service]\nWatchdogSec=2\n")
    run("systemctl", "daemon-reload")
    run("systemctl", "restart", "gate.service")
    info()
    time.sleep(3)  # longer than the watchdog waits: one that goes round is left alone
    before = int(show("MainPID"))
    assert show("NRestarts") == "0"
    os.kill(before, signal.SIGSTOP)
    assert claim("kept")["parameters"]["decision"] == "sent"
    assert int(show("MainPID")) != before
    drop_in.unlink()
    run("systemctl", "daemon-reload")
    run("systemctl", "restart", "gate.service")


def a_crash_loop_heals_and_the_socket_stays() -> None:
    good = CONFIG.read_text()
    CONFIG.write_text("nonsense = true\n")
    run("systemctl", "restart", "gate.service", check=False)
    answered: list[str] = []
    waiter = threading.Thread(target=lambda: answered.append(claim("kept")["parameters"]["decision"]))
    waiter.start()
    until(lambda: int(show("NRestarts")) >= 6)
    assert show("ActiveState", "gate.socket") == "active"
    assert Path(SOCKET).exists()
    CONFIG.write_text(good)
    waiter.join(PATIENCE)
    assert answered == ["sent"], answered


def stop_and_start_keep_the_state() -> None:
    run("systemctl", "stop", "gate.socket", "gate.service")
    assert not Path(SOCKET).exists()
    run("systemctl", "start", "gate.socket")
    assert claim("kept")["parameters"]["decision"] == "sent"


def an_upgrade_keeps_the_state_and_is_not_noticed() -> object:
    before = info()["version"]
    install_wheel(LATER)
    saw = twenty_calls_across_a_restart_are_answered("upgrade")
    assert (before != LATER, info()["version"]) == (True, LATER)
    assert claim("kept")["parameters"]["decision"] == "sent"
    return f"{before} to {LATER}: {saw}"


def places_of_other_users_outlive_a_restart() -> None:
    """The sandbox hides their processes in /proc; that they live is seen all the same."""
    CONFIG.write_text('timezone = "UTC"\n[[fetch]]\nname = "one"\nat_once = 1\n')
    run("systemctl", "reload", "gate.service")
    holder = subprocess.Popen(
        [
            "setpriv",
            "--reuid=member",
            "--regid=member",
            "--init-groups",
            "/usr/bin/python3",
            "/opt/app/inside.py",
            "hold",
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        refused = {"worker": "w", "queues": ["q"], "session": "s"}
        assert call("io.schedulegate.Fetch.Acquire", **refused)["parameters"]["open"] is False
        run("systemctl", "restart", "gate.service")
        time.sleep(3)  # longer than the grace of a process that is gone
        assert call("io.schedulegate.Fetch.Acquire", **refused)["parameters"]["open"] is False
    finally:
        holder.kill()
        holder.wait()
    until(lambda: call("io.schedulegate.Fetch.Acquire", **refused)["parameters"]["open"])


def hold() -> None:
    """A worker that has a place and sleeps."""
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(SOCKET)
    ask = {"worker": "w", "queues": ["q"], "session": "t"}
    sock.sendall(json.dumps({"method": "io.schedulegate.Fetch.Acquire", "parameters": ask}).encode() + b"\0")
    permit = json.loads(sock.recv(65536).rstrip(b"\0"))["parameters"]["permit"]
    bind = {"permit": permit, "queue": "q"}
    sock.sendall(json.dumps({"method": "io.schedulegate.Fetch.Bind", "parameters": bind}).encode() + b"\0")
    assert "error" not in json.loads(sock.recv(65536).rstrip(b"\0"))
    sys.stdout.write("held\n")
    sys.stdout.flush()
    time.sleep(600)


def varlinkctl_talks_to_it() -> object:
    if shutil.which("varlinkctl") is None:
        return "this systemd has no varlinkctl"
    address = f"unix:{SOCKET}"
    assert "schedule-gate" in run("varlinkctl", "info", address)[1]
    assert "io.schedulegate.Send" in run("varlinkctl", "list-interfaces", address)[1]
    for name in ("Send", "Fetch", "Control"):
        assert "method" in run("varlinkctl", "introspect", address, f"io.schedulegate.{name}")[1]
    asked = json.dumps({"schedule": "kept", "holder": "varlinkctl", "at": MINUTE})
    assert '"sent"' in run("varlinkctl", "call", address, "io.schedulegate.Send.Claim", asked)[1]
    asked = json.dumps({"schedule": "kept", "holder": "varlinkctl", "at": MINUTE})
    assert '"sent"' in run("varlinkctl", "call", "--more", address, "io.schedulegate.Send.Claim", asked)[1]
    return run("varlinkctl", "--version")[1].splitlines()[0]


def a_taskiq_scheduler_unit_sends_through_it() -> None:
    app = Path("/opt/tasks.py")
    app.write_text(
        "from pathlib import Path\n"
        "from taskiq import InMemoryBroker, TaskiqScheduler\n"
        "from taskiq.schedule_sources import LabelScheduleSource\n"
        "from taskiq_gate import GatedScheduleSource\n"
        "broker = InMemoryBroker()\n"
        "@broker.task(schedule=[{'interval': 1, 'schedule_id': 'tick'}])\n"
        "async def tick():\n"
        "    with Path('/tmp/ticks').open('a') as file:\n"
        "        file.write('tick\\n')\n"
        "scheduler = TaskiqScheduler(broker, [GatedScheduleSource(LabelScheduleSource(broker))])\n"
    )
    Path("/etc/systemd/system/beat.service").write_text(
        "[Unit]\nWants=gate.socket\nAfter=gate.socket\n[Service]\nUser=member\nWorkingDirectory=/opt\n"
        f"Environment=PYTHONPATH={HOME}/site\n"
        "ExecStart=/usr/bin/python3 -m taskiq scheduler tasks:scheduler\n"
    )
    run("systemctl", "stop", "gate.socket", "gate.service")
    run("systemctl", "daemon-reload")
    run("systemctl", "start", "beat.service")
    try:
        until(lambda: Path("/tmp/ticks").exists() and Path("/tmp/ticks").read_text().count("tick") >= 2)
        assert show("ActiveState", "gate.socket") == "active"
        schedules = call("io.schedulegate.Control.Status")["parameters"]["schedules"]
        assert any(one["sent"] >= 1 for one in schedules), schedules
    except AssertionError as error:
        raise AssertionError(f"{error}; {run('journalctl', '-u', 'beat.service', '--no-pager')[1][-2000:]}") from error
    finally:
        run("systemctl", "stop", "beat.service")


def the_redis_drop_in_is_exposed_a_little_more_and_serves() -> object:
    run(HOME / "bin/gatectl", "install-units", "--with", "redis")
    run("systemctl", "daemon-reload")
    run("systemctl", "restart", "gate.service")
    info()
    level, text = exposure()
    assert level <= 1.1, text
    return level


CHECKS = [
    install,
    verify_prints_nothing,
    the_first_client_starts_it,
    it_is_not_exposed,
    claims_go_to_its_own_user_and_folder,
    a_stranger_may_not_connect_a_member_may_ask_and_root_and_the_listed_may_steer,
    reload_takes_a_good_file_and_refuses_a_bad_one,
    twenty_calls_across_a_restart_are_answered,
    what_was_claimed_and_ordered_survives,
    a_killed_gate_comes_back,
    the_watchdog_ends_a_gate_that_hangs,
    a_crash_loop_heals_and_the_socket_stays,
    stop_and_start_keep_the_state,
    an_upgrade_keeps_the_state_and_is_not_noticed,
    places_of_other_users_outlive_a_restart,
    varlinkctl_talks_to_it,
    a_taskiq_scheduler_unit_sends_through_it,
    the_redis_drop_in_is_exposed_a_little_more_and_serves,
]


def main() -> None:
    if sys.argv[1:] == ["hold"]:
        hold()
        return
    for check in CHECKS:
        begin = time.monotonic()
        try:
            saw = check()
            held = True
        except Exception as error:  # noqa: BLE001 - whatever it is, it is told
            saw, held = f"{type(error).__name__}: {error}", False
            saw += "\n" + run("journalctl", "-u", "gate.service", "-n", "15", "--no-pager", "-o", "cat", check=False)[1]
        took = round(time.monotonic() - begin, 2)
        sys.stdout.write(json.dumps({"name": check.__name__, "held": held, "saw": str(saw), "took": took}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
