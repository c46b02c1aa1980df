"""Several Redis servers that belong together: a primary with replicas and sentinels, and a Cluster."""

import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import redis

from tests.support.redis import PATIENCE, RedisServer, free_port

SERVICE = "main"
SLOTS = 16_384
DOWN_MILLISECONDS = 500
"""After this long without an answer a server counts as down."""
REPLICATING = ("--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "0")


def eventually(happens: Callable[[], object], what: str, seconds: float = 3 * PATIENCE) -> None:
    """Wait until something is true; a server that does not answer yet is not true."""
    end = time.monotonic() + seconds
    while True:
        try:
            if happens():
                return
        except redis.RedisError:
            pass
        if time.monotonic() > end:
            raise RuntimeError(f"not within {seconds:g} s: {what}")
        time.sleep(0.02)


def ask(server: RedisServer, *words: Any) -> Any:
    """Send one command, and give its whole answer."""
    return _execute({"unix_socket_path": str(server.socket)}, *words)


def _execute(where: dict[str, Any], *words: Any) -> Any:
    plain: Any = redis.Redis
    with plain(**where, socket_timeout=PATIENCE) as client:
        return client.execute_command(*words)


def leads(server: RedisServer) -> bool:
    """Whether it is a primary."""
    return bool(_text(ask(server, "ROLE")[0]) == "master")


def _fed(owner: RedisServer, count: int) -> None:
    """Wait until so many replicas have a whole copy of what an empty server holds, and hear what it is told.

    That begins with their first word, which may come a second after the copy.
    """
    eventually(lambda: len(_replicas(owner)) == count, "its replicas follow")
    ask(owner, "FLUSHALL")  # something to hear of
    heard = int(ask(owner, "INFO", "replication")["master_repl_offset"])
    eventually(lambda: all(int(one["offset"]) >= heard for one in _replicas(owner)), "its replicas hear of it")


def _replicas(server: RedisServer) -> list[dict[str, Any]]:
    found: dict[str, Any] = ask(server, "INFO", "replication")
    return [one for name, one in found.items() if name.startswith("slave") and one.get("state") == "online"]


class Sentinels:
    """A primary, two replicas that have all of it, and three sentinels that watch them. `url` is for the gate."""

    def __init__(self, binary: Path, stack: ExitStack) -> None:
        self._binary = binary
        self.primary = _started(binary, stack, *REPLICATING)
        of = ("--replicaof", "127.0.0.1", str(self.primary.port))
        self.replicas = [_started(binary, stack, *REPLICATING, *of) for _ in range(2)]
        _fed(self.primary, 2)
        self._folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gate-sentinel-")))
        self._ports = [free_port() for _ in range(3)]
        for port in self._ports:
            self._start_sentinel(port, stack)
        hosts = ",".join(f"127.0.0.1:{port}" for port in self._ports)
        self.url = f"redis+sentinel://{hosts}/{SERVICE}"
        for port in self._ports:
            eventually(lambda port=port: self._sees_all(port), "the sentinels know of each other")  # type: ignore[misc]

    def cut_replicas_off(self) -> None:
        """From now on no replica hears of anything, though each may take over."""
        ask(self.primary, "ACL", "SETUSER", "default", "-psync", "-sync")
        ask(self.primary, "CLIENT", "KILL", "TYPE", "replica")

    def elected(self) -> RedisServer:
        """The replica that has taken over, when all sentinels say so."""
        eventually(lambda: self._new_primary() is not None, "a replica took over")
        found = self._new_primary()
        assert found is not None
        return found

    def _new_primary(self) -> RedisServer | None:
        ports = {self._asked(port, "GET-MASTER-ADDR-BY-NAME", SERVICE)[1] for port in self._ports}
        for server in self.replicas:
            if ports in ({server.port}, {str(server.port)}, {str(server.port).encode()}):
                return server if leads(server) else None
        return None

    def _start_sentinel(self, port: int, stack: ExitStack) -> None:
        """It is told of the others, which takes it seconds to find by itself."""
        known = [f"known-replica {SERVICE} 127.0.0.1 {one.port}" for one in self.replicas]
        known += [f"known-sentinel {SERVICE} 127.0.0.1 {one} {one:040x}" for one in self._ports if one != port]
        config = self._folder / f"{port}.conf"
        config.write_text(
            f"port {port}\nbind 127.0.0.1\ndir {self._folder}\nlogfile {self._folder}/{port}.log\n"
            f"sentinel monitor {SERVICE} 127.0.0.1 {self.primary.port} 2\n"
            f"sentinel down-after-milliseconds {SERVICE} {DOWN_MILLISECONDS}\n"
            f"sentinel failover-timeout {SERVICE} 3000\nsentinel myid {port:040x}\n"
            + "".join(f"sentinel {line}\n" for line in known)
        )
        process = subprocess.Popen([str(self._binary), str(config), "--sentinel"], stdin=subprocess.DEVNULL)
        stack.callback(process.wait)
        stack.callback(process.kill)

    def _sees_all(self, port: int) -> bool:
        seen = self._asked(port, "MASTER", SERVICE)
        return (str(seen["num-slaves"]), str(seen["num-other-sentinels"])) == ("2", "2")

    @staticmethod
    def _asked(port: int, *words: str) -> Any:
        return _execute({"port": port}, f"SENTINEL {words[0]}", *words[1:])


class Cluster:
    """Three servers that share the slots between them, and one replica of each if asked. `url` is for the gate."""

    def __init__(self, binary: Path, stack: ExitStack, *, replicas: bool = False) -> None:
        quick = ("--cluster-enabled", "yes", "--cluster-node-timeout", "1000", *REPLICATING)
        lax = ("--cluster-require-full-coverage", "no", "--cluster-replica-validity-factor", "0")
        self.owners = [_started(binary, stack, *quick, *lax) for _ in range(3)]
        self.replicas = [_started(binary, stack, *quick, *lax) for _ in range(3 if replicas else 0)]
        everyone = self.owners + self.replicas
        ends = [SLOTS * n // 3 for n in range(4)]
        for n, owner in enumerate(self.owners):
            ask(owner, "CLUSTER", "ADDSLOTS", *range(ends[n], ends[n + 1]))
            ask(owner, "CLUSTER", "SET-CONFIG-EPOCH", n + 1)
        for one in everyone[1:]:
            ask(one, "CLUSTER MEET", "127.0.0.1", everyone[0].port)
        eventually(lambda: all(self._knows_all(one) for one in everyone), "the nodes know each other")
        for owner, replica in zip(self.owners, self.replicas, strict=False):
            name = _text(ask(owner, "CLUSTER MYID"))
            eventually(lambda r=replica, n=name: ask(r, "CLUSTER REPLICATE", n), "it replicates")  # type: ignore[misc]
        for owner in self.owners if replicas else ():
            _fed(owner, 1)
        self.url = f"redis+cluster://127.0.0.1:{self.owners[0].port}"

    def owner_of(self, prefix: str) -> int:
        """Which of `owners` has the keys of a store with this prefix."""
        slot = int(ask(self.owners[0], "CLUSTER KEYSLOT", f"{{{prefix}}}"))
        return next(n for n in range(3) if slot < SLOTS * (n + 1) // 3)

    def _knows_all(self, server: RedisServer) -> bool:
        said = ask(server, "CLUSTER INFO")
        total = str(len(self.owners) + len(self.replicas))
        return (_text(said["cluster_state"]), _text(said["cluster_known_nodes"])) == ("ok", total)


def _started(binary: Path, stack: ExitStack, *options: str) -> RedisServer:
    server = RedisServer(binary, *options)
    stack.callback(server.close)
    server.start()
    return server


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
