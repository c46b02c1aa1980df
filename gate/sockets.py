"""The listening socket: a stale one is replaced, a live one refused."""

import errno
import fcntl
import grp
import logging
import os
import socket
import stat
from pathlib import Path
from typing import IO

from gate.errors import StartError
from gate.peer import credentials

log = logging.getLogger("gate.daemon")

GROUP = "gate-clients"
MODE = 0o660
BACKLOG = 1024


def lock(path: Path, says: str) -> IO[str]:
    """Take the lock file at `path`, write `says` into it, and keep it as long as the returned file is open.

    Raises StartError, with what the holder wrote, when another process has it.
    """
    try:
        file = path.open("a+", encoding="utf-8")
    except OSError as error:
        raise StartError(f"{path} cannot be opened: {error.strerror}") from error
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.seek(0)
        holder = file.read().strip() or "a process that did not say who it is"
        file.close()
        raise StartError(f"{path} is held by {holder}: one gate per state directory, ledger and socket") from None
    file.truncate(0)
    file.write(says + "\n")
    file.flush()
    return file


def listen(path: Path) -> socket.socket:
    """Bind and listen at `path` with mode 0660, group gate-clients where it exists; raises StartError."""
    try:
        _make_room(path)
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        try:
            _bind(sock, path)
        except BaseException:
            sock.close()
            raise
    except OSError as error:
        raise StartError(f"{path}: cannot listen: {error.strerror or error}") from error
    return sock


def _make_room(path: Path) -> None:
    """Remove a socket that nobody serves. Anything else at this place stays, and is an error."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise StartError(f"{path} is not a socket: move it away, or name another place")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        refused = probe.connect_ex(str(path))
        holder = "a running process" if refused else f"the process with pid {credentials(probe).pid}"
    if refused == errno.ECONNREFUSED:
        path.unlink()
        return
    raise StartError(f"{path} is in use by {holder}: one gate per socket")


def _bind(sock: socket.socket, path: Path) -> None:
    before = os.umask(0o177)
    try:
        sock.bind(str(path))
    finally:
        os.umask(before)
    try:
        os.chown(path, -1, grp.getgrnam(GROUP).gr_gid)
    except KeyError:
        log.debug("there is no group %s: the socket keeps the group of this process", GROUP)
    except PermissionError:
        log.debug("not a member of %s: the socket keeps the group of this process", GROUP)
    path.chmod(MODE)
    sock.listen(BACKLOG)
