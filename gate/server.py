"""What each method does."""

from collections.abc import Callable
from functools import partial
from importlib.resources import files
from typing import Any

from gate import errors, interface
from gate.control import Control, connection_of
from gate.engine import Engine, Request
from gate.fetch import FetchEngine
from gate.ledger import Event
from gate.reactor import Connection
from gate.review import Reviews
from gate.wire import Slot

PRODUCT = "schedule-gate"


class Server:
    """Serves the methods of all interfaces."""

    def __init__(self, version: str, engine: Engine, fetch: FetchEngine, control: Control, reviews: Reviews) -> None:
        self._version = version
        self._engine = engine
        self._fetch = fetch
        self._methods: dict[str, Callable[[Request, Any], None]] = {
            "org.varlink.service.GetInfo": self._get_info,
            "org.varlink.service.GetInterfaceDescription": self._get_interface_description,
            "io.schedulegate.Send.Claim": engine.claim,
            "io.schedulegate.Send.Start": engine.start,
            "io.schedulegate.Send.Confirm": partial(self._settle, Event.CONFIRM),
            "io.schedulegate.Send.Release": partial(self._settle, Event.RELEASE),
            "io.schedulegate.Send.Review": reviews.review,
            "io.schedulegate.Send.Missed": reviews.missed,
            "io.schedulegate.Fetch.Check": self._check,
            "io.schedulegate.Fetch.Watch": self._watch,
            "io.schedulegate.Fetch.Acquire": partial(self._place, fetch.placing.acquire),
            "io.schedulegate.Fetch.Bind": partial(self._place, fetch.placing.bind),
            "io.schedulegate.Fetch.Release": partial(self._place, fetch.placing.release),
            "io.schedulegate.Fetch.Restore": partial(self._place, fetch.placing.restore),
            **control.methods,
        }

    def serve(self, connection: Connection, slot: Slot) -> None:
        """Answer a call, now or when the store has. Nothing that a peer asks for may end the gate."""
        assert slot.call is not None
        request = Request(connection, slot)
        try:
            self._methods[slot.call.method](request, slot.parameters)
        except Exception as error:  # noqa: BLE001 - whatever it is, `failed` logs it
            self._engine.failed(request, error)

    # -- org.varlink.service

    def _get_info(self, request: Request, _: interface.Empty) -> None:
        request.reply(
            interface.GetInfoOut(
                vendor=PRODUCT,
                product=PRODUCT,
                version=self._version,
                url="https://varlink.org/",
                interfaces=list(interface.INTERFACES),
            )
        )

    def _get_interface_description(self, request: Request, asked: interface.GetInterfaceDescriptionIn) -> None:
        if asked.interface not in interface.INTERFACES:
            request.fail(errors.InterfaceNotFound(interface=asked.interface))
            return
        text = files("gate").joinpath(f"{asked.interface}.varlink").read_text(encoding="utf-8")
        request.reply(interface.GetInterfaceDescriptionOut(description=text))

    # -- io.schedulegate.Send

    def _settle(self, event: Event, request: Request, asked: interface.TokenIn) -> None:
        self._engine.settle(request, event, asked.token)

    # -- io.schedulegate.Fetch

    def _check(self, request: Request, asked: interface.CheckIn) -> None:
        try:
            request.reply(self._fetch.check(asked))
        except errors.InvalidWorker as error:
            request.fail(error)

    def _watch(self, request: Request, asked: interface.WatchIn) -> None:
        try:
            self._fetch.watch(connection_of(request), request.slot, asked)
        except errors.InvalidWorker as error:
            request.fail(error)

    def _place(self, method: Callable[[Request, Any], None], request: Request, asked: Any) -> None:
        try:
            method(request, asked)
        except (errors.InvalidWorker, errors.UnknownPermit) as error:
            request.fail(error)
