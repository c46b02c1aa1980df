"""The configuration in force, and how it is replaced: when somebody asks, and when something that it names changes.

What was read is taken over as a whole, or not at all: then what ran before goes on, and `problem` says why.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime
from functools import partial
from pathlib import Path

import trio

from gate.config import Config
from gate.errors import ConfigError
from gate.reload import Calendars, Loaded, file_stamp, load, read_bytes, stamp
from gate.settings import Shared

log = logging.getLogger("gate.config")

LOOK_SECONDS = 10.0
"""How often to look whether calendars changed."""
LOOK_RARELY_SECONDS = 3600.0
"""How often to look whether time zone data or the day changed, where there are no calendars."""

Outcome = Loaded | ConfigError


class Reloader:
    """The configuration in force, and how it is replaced.

    `find`: where the configuration is, None for the built-in defaults. `in_thread`: runs a function beside the event
    loop. `take`: puts a configuration in force; set it before `run`.
    """

    def __init__(
        self,
        find: Callable[[], Path | None],
        now: Callable[[], datetime],
        in_thread: Callable[[Callable[[], Outcome]], Awaitable[Outcome]] = trio.to_thread.run_sync,
    ) -> None:
        """Read the configuration; raises ConfigError."""
        self._find = find
        self._now = now
        self._in_thread = in_thread
        self._calendars = Calendars()
        self._waiting: list[Callable[[Outcome], None]] = []
        self._wanted = trio.Event()
        self.take: Callable[[Loaded], None] = _nothing
        self.began: Callable[[], None] = _nobody
        self.ended: Callable[[], None] = _nobody
        """Called before and after the file is read because somebody asked."""
        self.problem: str | None = None
        """Why the file was not taken over when somebody asked for that last."""
        file = find()
        self.current = load(file, read_bytes(file), self._calendars, self._now())
        self._kept_store = _store_of(self.current.config)
        _tell(self.current.warnings)

    def ask(self, then: Callable[[Outcome], None]) -> None:
        """Read the file again; `then` gets what was taken over, or why not. All who wait are answered together."""
        self._waiting.append(then)
        self._wanted.set()

    async def run(self) -> None:
        """Serve those who ask, and look for changes of what the file names."""
        while True:
            with trio.move_on_after(LOOK_SECONDS if self.current.calendars else LOOK_RARELY_SECONDS):
                await self._wanted.wait()
            self._wanted = trio.Event()
            waiting, self._waiting = self._waiting, []
            if waiting:
                self.began()
                outcome = await self._in_thread(partial(_guarded, self._reload))
                self._reloaded(outcome)
                self.ended()
                for then in waiting:
                    then(outcome)
            else:
                self._refreshed(await self._in_thread(partial(_guarded, self._refresh)))

    # -- beside the event loop

    def _reload(self) -> Loaded:
        file = self.current.file or self._find()
        loaded = load(file, read_bytes(file), self._calendars, self._now())
        if _store_of(loaded.config) != self._kept_store:
            raise ConfigError(loaded.source, ["store: a reload cannot change it: restart the gate"])
        return loaded

    def _refresh(self) -> Loaded:
        """The same file, read with the calendars and time zone data that are there now."""
        current = self.current
        now = self._now()
        calendars = {path: file_stamp(path) for path in current.calendars}
        if calendars == current.calendars and stamp(current.config, now) == current.stamp:
            return current
        return load(current.file, current.data, self._calendars, now)

    # -- in the event loop

    def _reloaded(self, outcome: Outcome) -> None:
        if isinstance(outcome, ConfigError):
            self.problem = str(outcome)
            findings = "; ".join(outcome.findings)
            log.error("%s is not taken over, and what ran before goes on: %s", outcome.source, findings)
            return
        self.problem = None
        self._take(outcome)
        log.info("the configuration was read again and is in force", extra={"file": outcome.source})

    def _refreshed(self, outcome: Outcome) -> None:
        if isinstance(outcome, ConfigError):
            log.error("what the configuration names cannot be read anew, and what it said before holds: %s", outcome)
        elif outcome is not self.current:
            self._take(outcome)
            log.info("calendars or time zone data were read again", extra={"tzdata": outcome.tzdata.version})

    def _take(self, loaded: Loaded) -> None:
        _tell(warning for warning in loaded.warnings if warning not in set(self.current.warnings))
        self.current = loaded
        self.take(loaded)


def _store_of(config: Config) -> tuple[str, float, Shared]:
    """What is opened at the start, and stays."""
    return config.store_url, config.keep, config.shared


def _guarded(load: Callable[[], Loaded]) -> Outcome:
    """A configuration that cannot be read must not end the gate, whatever the reason."""
    try:
        return load()
    except ConfigError as error:
        return error
    except Exception as error:
        log.exception("reading the configuration failed in a way that it should not")
        return ConfigError("configuration", [f"cannot be read: {error!r}"])


def _tell(warnings: Iterable[str]) -> None:
    for warning in warnings:
        log.warning("%s", warning)


def _nobody() -> None:
    """Nobody is told."""


def _nothing(_: Loaded) -> None:
    """Nobody is interested yet."""
