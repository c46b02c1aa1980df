"""schedule-gate: may I send schedule X for minute M?

The code map. P marks pure modules: they take `now` as an argument and do no I/O; ruff's banned-api enforces it.

    errors.py      P  the error tree: wire name, fields, text
    interface.py   P  one struct per method and reply, beside the hand-written *.varlink files
    wire.py        P  the Varlink codec, for the server and both clients
    durations.py   P  "1h30m" to seconds and back
    rules.py       P  which [[send]] rule covers a schedule
    config.py      P  bytes of gate.toml to a Config, every error at once
    ledger.py      P  the send table: every transition of an occurrence, and every answer to a claim
    clock.py          the wall clock, as a thing that can be handed in
    stores/           where records live: base (the protocol), memory, sqlite
    writer.py         the thread that owns the store; everything that waits goes in one transaction
    timers.py         leases, grace and limits, on the monotonic clock
    engine.py         the one place where decisions meet the store
    reactor.py        one trio task that reads and writes all connections
    server.py         what each method does, and who may call it
    peer.py           who is at the other end of a connection (SO_PEERCRED)
    sockets.py        the listening socket: stale ones replaced, live ones refused
    paths.py          where socket, state and configuration are when nobody says so
    tzdata.py         which time zone data is in use
    log.py            log lines for people or as JSON
    daemon.py         arguments, signals, start and stop
    ctl/              gatectl, one module per command group
"""
