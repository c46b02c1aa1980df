"""A connection to Redis or Valkey: from a URL to a client, one script that compares and sets, and the server's clock.

Everything raises StoreError, whose text names the server and never a password. A call that timed out may have been
carried out: whoever calls asks for the outcome by comparing again.
"""

import time
from collections.abc import Callable, Sequence
from datetime import datetime
from hashlib import sha1
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import redis
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError, ReadOnlyError, RedisError
from redis.retry import Retry
from redis.sentinel import Sentinel

from gate.errors import StartError, StoreError
from gate.stores.redisplan import MOST_WORDS, Command, Ref
from gate.stores.redisrecord import instant

TIMEOUT_SECONDS = 1.0
"""How long one answer may take. All claims wait meanwhile, so it is short; a retry asks for what became of it."""
TRIES = 2
OLDEST = (6, 2)
SCRIPT = """
if redis.replicate_commands then redis.replicate_commands() end
local time, words = redis.call('TIME'), cmsgpack.unpack(ARGV[1])
local at, same, held = 1, true, {}
local function number() at = at + 1; return tonumber(words[at - 1]) end
local function look(count)
  local values = redis.call('HMGET', words[at], unpack(words, at + 1, at + count))
  at = at + count
  for i = 1, count do held[#held + 1] = values[i] end
  return values
end
for _ = 1, number() do
  local count = number()
  local values = look(count)
  for i = 1, count do
    if (values[i] or '') ~= words[at + i] then same = false end
  end
  at = at + count + 1
end
local peeks = number()
if not same then
  for _ = 1, peeks do
    look(number())
    at = at + 1
  end
  return {0, time[1], time[2], held}
end
for _ = 1, peeks do
  local count = number()
  at = at + count + 1
end
while at <= #words do
  local count = number()
  redis.call(unpack(words, at, at + count - 1))
  at = at + count
end
return {1, time[1], time[2]}
"""
"""Compares fields of hashes with what they are thought to hold ('' is nothing). If all are as thought, carries out the
commands; else gives what these fields, and those to peek at, hold. It knows no rule. All that it is told is one list of
words: to take them one by one would cost the server and redis-py more than all else. Every key has the same hash tag,
so a cluster may run it."""

SWAP = """
local held = redis.call('GET', KEYS[1]) or ''
if held ~= ARGV[1] then return held end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
return false
"""

SCRIPT_SHA = sha1(SCRIPT.encode(), usedforsecurity=False).hexdigest()

T = TypeVar("T")


class Link:
    """One client, used by one thread. `where`: the server, for people; `skew`: seconds by which this host's clock is
    ahead of the server's. `round_trip`: seconds of the last call.
    """

    def __init__(self, url: str, password: str | None, replicas: int, wall: Callable[[], float] = time.time) -> None:
        self.where = shown(url)
        self.skew = 0.0
        self.round_trip = 0.0
        self._replicas = replicas
        self._unheard = replicas > 0
        """Whether something was written, now or by a gate before, of which too few replicas are known to have heard."""
        self._wall = wall
        self._offset: float | None = None
        self._away = False
        """Whether the last call was not answered."""
        try:
            self._client = _client(url, password)
        except (RedisError, ValueError, OSError) as error:
            raise StartError(f"store {self.where}: {_text(error)}") from error

    def now(self) -> datetime:
        """The server's clock, by what it said last; between two calls this host's own clocks count on."""
        if self._offset is None:
            self.compare([], [], [])
        assert self._offset is not None
        return instant((_boot() + self._offset) * 1e6)

    def compare(
        self, checks: Sequence[tuple[Ref, bytes]], peeks: Sequence[Ref], commands: Sequence[Command]
    ) -> list[bytes | None] | None:
        """Carry out the commands if the fields of `checks` hold what stands beside them; None if that was done.

        Else what all fields of `checks`, and then of `peeks`, hold. Raises StoreError, and then it may have been done.
        """
        if self._unheard and checks and checks[0][1] and not commands:
            # an answer may rest on what was written before: WAIT counts from the last write of its own connection
            (key, field), value = checks[0]
            commands = [[b"HSET", key, field, value]]
        seen, looked = _groups([ref for ref, _ in checks]), _groups(peeks)
        words = [b"%d" % len(seen)]
        for key, places in seen:
            words += [b"%d" % len(places), key, *(checks[n][0][1] for n in places), *(checks[n][1] for n in places)]
        words.append(b"%d" % len(looked))
        for key, places in looked:
            words += [b"%d" % len(places), key, *(peeks[n][1] for n in places)]
        for command in commands:
            words.append(b"%d" % len(command))
            words += command
        keys = [checks[0][0][0]] if checks else []
        answer = self.call(lambda client: self._run(client, keys, packed(words)))
        if answer[0] == 0:
            order = [n for _, places in seen for n in places]
            order += [len(checks) + n for _, places in looked for n in places]
            return [value for _, value in sorted(zip(order, answer[3], strict=True), key=lambda pair: pair[0])]
        if commands and self._replicas:
            self._await_replicas(commands[0][1])
        return None

    def call(self, work: Callable[[Any], T], tries: int = TRIES) -> T:
        """Run `work` on the client. It is tried once more after the connection was lost, so it must be idempotent.

        Not while the server is away: whoever waits for this call, and then calls, is to be told so within three waits.
        """
        for left in reversed(range(1 if self._away else tries)):
            before = time.monotonic()
            try:
                result = work(self._client)
            except (RedisError, OSError) as error:
                self._lost(error)
                if not left or not _lost_connection(error):
                    self._away = _lost_connection(error)
                    raise StoreError(f"{self.where}: {_text(error)}") from error
            else:
                self.round_trip = time.monotonic() - before
                self._away = False
                return result
        raise AssertionError("unreachable")

    def close(self) -> None:
        """Hang up."""
        self._disconnect()  # which a cluster's client leaves to the garbage collector
        self._client.close()

    def swap(self, key: bytes, before: bytes | None, after: bytes, end: int) -> tuple[bool, bytes | None]:
        """Set a key that still holds what it did, for `end` milliseconds; else say what it holds.

        Raises StoreError, and then it may have been done.
        """
        held = self.call(lambda client: client.eval(SWAP, 1, key, before or b"", after, end))
        if held is not None:
            return False, bytes(held) or None
        if self._replicas:
            self._await_replicas(key)
        return True, after

    def _run(self, client: Any, keys: list[bytes], words: bytes) -> Any:
        before, wall = _boot(), self._wall()
        try:
            answer = self._evaluate(client, keys, words)
        finally:
            after = _boot()
        said = int(answer[1]) + int(answer[2]) / 1e6
        half = (after - before) / 2
        self._offset = said - (before + half)
        self.skew = wall + half - said
        return answer

    def _evaluate(self, client: Any, keys: list[bytes], words: bytes) -> Any:
        try:
            return client.evalsha(SCRIPT_SHA, len(keys), *keys, words)
        except NoScriptError:  # a server that runs it for the first time
            return client.eval(SCRIPT, len(keys), *keys, words)

    def _await_replicas(self, key: bytes) -> None:
        """Not tried again: on another connection WAIT would know of no write, and count every replica."""
        self._unheard = True
        reached = self.call(lambda client: _wait(client, key, self._replicas), tries=1)
        if reached < self._replicas:
            raise StoreError(f"{self.where}: only {reached} of wait_replicas = {self._replicas} replicas have it yet")
        self._unheard = False

    def _lost(self, error: Exception) -> None:
        """Whoever answered may be the primary no more, or may be in the midst of another answer."""
        if _lost_connection(error):
            self._disconnect()

    def _disconnect(self) -> None:
        client: Any = self._client
        if isinstance(client, redis.RedisCluster):
            client.disconnect_connection_pools()  # type: ignore[no-untyped-call]
        else:
            client.connection_pool.disconnect()

    # -- what kind of server it is

    def check(self, *, allow_eviction: bool) -> list[str]:
        """Refuse a server that would lose what it is told: raises StartError. Returns warnings."""
        info: dict[str, Any] = self.call(_info)
        version = str(info.get("redis_version", "0"))
        if tuple(int(part) for part in version.split(".")[:2]) < OLDEST:
            raise StartError(f"store {self.where}: Redis {version} is too old, 6.2 is the oldest that will do")
        try:
            policy = self.call(_policy)
        except StoreError as error:  # managed servers forbid CONFIG
            policy = str(info.get("maxmemory_policy", ""))
            if not policy:
                return [f"whether {self.where} evicts keys cannot be told ({error}): it must not"]
        if policy in ("", "noeviction") or info.get("maxmemory") == 0:
            return []
        text = (
            f"store {self.where}: maxmemory-policy is {policy}, so it may forget what was sent, and send it twice: set"
            " it to noeviction, or allow_eviction = true in [store] to run all the same"
        )
        if allow_eviction:
            return [text]
        raise StartError(text)

    def bytes_used(self) -> int:
        """How much memory the server uses, for whatever it holds."""
        return int(self.call(_info).get("used_memory", 0))


def packed(words: Sequence[bytes]) -> bytes:
    """A list of byte strings as Redis' own MessagePack reads it, which has no type for them but that of text."""
    parts = [part for word in words for part in (_heads[len(word)], word)]
    return b"".join([b"\xdd", len(words).to_bytes(4, "big"), *parts])


class _Heads(dict[int, bytes]):
    """What stands before a text of so many bytes."""

    def __missing__(self, size: int) -> bytes:
        head = bytes([0xA0 | size]) if size < 32 else b"\xdb" + size.to_bytes(4, "big")
        if size < 1024:
            self[size] = head
        return head


_heads = _Heads()


def _groups(refs: Sequence[Ref]) -> list[tuple[bytes, list[int]]]:
    """The numbers of those that lie in one hash, together, as many as one command may have."""
    by_key: dict[bytes, list[int]] = {}
    for number, (key, _) in enumerate(refs):
        by_key.setdefault(key, []).append(number)
    return [
        (key, places[start : start + MOST_WORDS])
        for key, places in by_key.items()
        for start in range(0, len(places), MOST_WORDS)
    ]


def _wait(client: Any, key: bytes, replicas: int) -> int:
    """How many replicas have heard of all that this connection wrote, to the node that holds `key`."""
    return int(client.execute_command("WAIT", replicas, int(TIMEOUT_SECONDS * 500), **_node(client, key)))


def _info(client: Any) -> dict[str, Any]:
    return dict(client.info(**_node(client)))


def _policy(client: Any) -> str:
    return str(client.config_get("maxmemory-policy", **_node(client))["maxmemory-policy"])


def _node(client: Any, key: bytes | None = None) -> dict[str, Any]:
    """Which node of a cluster shall answer: the one that holds `key`, or any primary."""
    cluster: Any = client
    if not isinstance(client, redis.RedisCluster):
        return {}
    return {"target_nodes": cluster.get_primaries()[0] if key is None else cluster.get_node_from_key(key)}


def shown(url: str) -> str:
    """A URL without its password, which may stand before the host or among the options."""
    parts = urlsplit(url)
    options = [(name, value) for name, value in parse_qsl(parts.query) if "password" not in name]
    credentials, _, host = parts.netloc.rpartition("@")
    user = credentials.partition(":")[0]
    parts = parts._replace(netloc=f"{user}@{host}" if user else host, query=urlencode(options, safe="/"))
    return (
        urlunsplit(parts) if parts.netloc else f"{parts.scheme}://{parts.path}" + (f"?{parts.query}" if options else "")
    )


def password_from(file: str, credentials: str | None) -> str:
    """The password that a file holds; a name without a folder is a systemd credential. Raises StartError."""
    path = Path(file)
    if not path.is_absolute():
        if credentials is None:
            raise StartError(f"store.password_file {file!r}: without a folder it is a credential, and there are none")
        path = Path(credentials) / file
    try:
        return path.read_text().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise StartError(f"store.password_file {path}: {getattr(error, 'strerror', None) or error}") from error


def _client(url: str, password: str | None) -> Any:
    options: dict[str, Any] = {
        "socket_timeout": TIMEOUT_SECONDS,
        "socket_connect_timeout": TIMEOUT_SECONDS,
        "retry": Retry(NoBackoff(), 0),
        "client_name": "schedule-gate",
    }
    if password is not None:
        options["password"] = password
    scheme, _, rest = url.partition("://")
    if scheme == "redis+cluster":
        cluster: Any = redis.RedisCluster
        return cluster.from_url(f"redis://{rest}", **options)
    if scheme == "redis+sentinel":
        return _from_sentinels(urlsplit(url), options)
    plain: Any = redis.Redis
    return plain.from_url(url, **options)


def _from_sentinels(parts: Any, options: dict[str, Any]) -> Any:
    """redis+sentinel://user:password@host:port,host:port/service/db"""
    credentials, _, hosts = parts.netloc.rpartition("@")
    service, _, number = parts.path.strip("/").partition("/")
    if not service:
        raise ValueError("name the service: redis+sentinel://host:26379,host:26379/mymaster")
    user, _, password = credentials.partition(":")
    if user:
        options["username"] = user
    if password and "password" not in options:
        options["password"] = password
    sentinels = [_address(host) for host in hosts.split(",")]
    kept: Any = Sentinel
    watch = kept(sentinels, sentinel_kwargs={"socket_timeout": TIMEOUT_SECONDS}, **options)
    return watch.master_for(service, db=int(number or 0), **options)


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    return (host, int(port)) if colon else (text, 26379)


def _lost_connection(error: Exception) -> bool:
    lost = (redis.ConnectionError, redis.TimeoutError, ReadOnlyError, OSError)
    return isinstance(error, lost) and not isinstance(error, redis.AuthenticationError)


def _text(error: Exception) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text[:1].lower() + text[1:] if text[1:2].islower() else text


def _boot() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)
