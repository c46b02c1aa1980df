"""Where socket, state and configuration are when nobody says so."""

from collections.abc import Callable
from pathlib import Path

import pytest

from gate.errors import StartError
from gate.paths import config_path, socket_path, state_path

ROOT, USER = 0, 1000
RUN = {"XDG_RUNTIME_DIR": "/run/user/1000"}


def only(*present: str) -> Callable[[Path], bool]:
    """A machine on which these paths exist."""
    return lambda path: str(path) in present


@pytest.mark.parametrize(
    ("given", "env", "uid", "present", "expected"),
    [
        ("/a/b.sock", {"GATE_SOCKET": "/c", **RUN}, ROOT, "/run/gate/gate.sock", "/a/b.sock"),
        (None, {"GATE_SOCKET": "/c", **RUN}, ROOT, "/run/gate/gate.sock", "/c"),
        (None, RUN, ROOT, "", "/run/gate/gate.sock"),
        (None, RUN, USER, "/run/gate/gate.sock", "/run/gate/gate.sock"),
        (None, RUN, USER, "", "/run/user/1000/gate/gate.sock"),
        ("", {"GATE_SOCKET": "", **RUN}, USER, "", "/run/user/1000/gate/gate.sock"),
        ("relative.sock", {}, USER, "", "relative.sock"),
    ],
)
def test_where_the_socket_is(given: str | None, env: dict[str, str], uid: int, present: str, expected: str) -> None:
    assert socket_path(given, env, uid, only(present)) == Path(expected)


@pytest.mark.parametrize(
    ("given", "env", "uid", "expected"),
    [
        ("/a", {"STATE_DIRECTORY": "/b", "XDG_STATE_HOME": "/c"}, ROOT, "/a"),
        (None, {"STATE_DIRECTORY": "/b", "XDG_STATE_HOME": "/c"}, ROOT, "/b"),
        (None, {"STATE_DIRECTORY": "/b:/b2"}, USER, "/b"),
        (None, {"XDG_STATE_HOME": "/c", "HOME": "/root"}, ROOT, "/var/lib/gate"),
        (None, {"XDG_STATE_HOME": "/c", "HOME": "/home/u"}, USER, "/c/gate"),
        (None, {"HOME": "/home/u"}, USER, "/home/u/.local/state/gate"),
        (None, {"XDG_STATE_HOME": "", "HOME": "/home/u"}, USER, "/home/u/.local/state/gate"),
    ],
)
def test_where_the_state_is(given: str | None, env: dict[str, str], uid: int, expected: str) -> None:
    assert state_path(given, env, uid) == Path(expected)


@pytest.mark.parametrize(
    ("given", "env", "present", "expected"),
    [
        ("/a.toml", {"GATE_CONFIG": "/b.toml"}, "/etc/gate/gate.toml", "/a.toml"),
        (None, {"GATE_CONFIG": "/b.toml"}, "/etc/gate/gate.toml", "/b.toml"),
        (None, {}, "/etc/gate/gate.toml", "/etc/gate/gate.toml"),
        (None, {"GATE_CONFIG": ""}, "", None),
    ],
)
def test_where_the_configuration_is(given: str | None, env: dict[str, str], present: str, expected: str | None) -> None:
    assert config_path(given, env, only(present)) == (None if expected is None else Path(expected))


def test_without_any_place_the_text_says_what_to_give() -> None:
    with pytest.raises(StartError) as no_socket:
        socket_path(None, {}, USER, only())
    assert str(no_socket.value) == "no place for the socket: give --socket, or set GATE_SOCKET or XDG_RUNTIME_DIR"
    with pytest.raises(StartError) as no_state:
        state_path(None, {}, USER)
    assert str(no_state.value) == (
        "no place for the state: give --state, or set STATE_DIRECTORY, XDG_STATE_HOME or HOME"
    )
