"""schedule-gate: may I send schedule X for minute M?

The code map. P marks pure modules: they take `now` as an argument and do no I/O; ruff's banned-api enforces it.

    errors.py      P  the error tree: wire name, fields, text
    interface.py   P  one struct per method and reply, beside the hand-written *.varlink files
    wire.py        P  the Varlink codec, for the server and both clients
    durations.py   P  "1h30m" to seconds and back
    calendars.py   P  days, holidays, and the wall clocks of zones
    cron.py        P  cron expressions, strictly, as croniter reads them
    lines.py       P  the language of [hours]: text to a Line
    masks.py       P  a Line to open minutes of UTC; contains, next change
    windows.py     P  unions, exceptions and early ends of hours; the compiler
    localdays.py   P  local days, whose clocks may jump; spans of hours in words
    odd.py         P  the days on which hours are not as in the weeks around
    week.py        P  the answer to Week: hours over some days, and odd days
    ical.py        P  bytes of an iCalendar file to days and spans
    rules.py       P  which [[send]] rule covers a schedule
    settings.py    P  the shapes of gate.toml, and how errors are collected
    atonce.py      P  at_once and ramp as texts
    hours.py       P  [days], [hours], [[fetch]] and [[resource]]: texts to rules as data
    config.py      P  bytes of gate.toml to a Config, every error at once
    globs.py       P  which of many lists of globs match a name
    moments.py     P  instants that may never come
    limits.py      P  at_once compiled: how many at an instant, and until when
    timetable.py   P  when one [[fetch]] rule is open, and which line says so
    overrides.py   P  what operators ordered over rules, until an end
    fetchrules.py  P  config + overrides to a verdict with reason and until
    fetchlimits.py P  the limits of rules and resources at an instant, ramps included
    pools.py       P  places that a limit counts, and how many may be given now
    graces.py      P  what is over at an instant unless something happens before
    holders.py     P  what processes hold, and what the disk says of it
    waitlist.py    P  who waits for a place, in order
    permit.py      P  one permit, and what is asked and answered about it
    places.py      P  which permits are held: by id, pool, process and connection
    offers.py      P  whether there is room, and whom a free place is offered to
    shares.py      P  how many places of a limit each of several gates may give
    permits.py     P  who may run a job now: reserve, bind, release, restore
    poolinfo.py    P  limits and places for people
    wallclock.py   P  instants in words
    explain.py     P  a verdict in words
    hints.py       P  warnings: what a configuration can hardly mean
    claims.py      P  claims and reports of misses, checked field by field
    starts.py      P  starts of tasks: claims in a name space of their own
    pauses.py      P  when nothing of a schedule is sent: hours, and what operators ordered
    listings.py    P  what schedulers list, and since when
    tallies.py     P  counts by schedule, and the last refusals
    ledger.py      P  the send table: every transition of an occurrence, and every answer to a claim
    asked.py       P  which workers and queues were asked for, so that misspelt rules are seen
    refusals.py    P  which refusals to steer are logged
    clock.py          the wall clock, as a thing that can be handed in; steps and suspend are noticed
    stores/           where records live: base (the protocol), memory, sqlite, redis
    writer.py         the thread that owns the store; everything that waits goes in one transaction
    mailbox.py        what one thread leaves for the event loop
    timers.py         leases, grace and limits, on the monotonic clock
    engine.py         the one place where decisions meet the store
    pausing.py        pauses of a running gate, and orders to pause
    review.py         Review and Missed: what schedulers may have missed
    processes.py      which process is which, and whether it lives
    placemarks.py     what of places is on disk
    waking.py         calls at an instant of the wall clock
    leases.py         the shares that this gate holds: asked for, renewed, given up in time
    placing.py        Acquire, Bind, Release, Restore: permits, processes, and what of them is on disk
    fetch.py          Check and Watch: who watches what, edges, overrides
    reload.py         reads a configuration with the calendars, users and zones that it names
    reloader.py       the configuration in force, and how it is replaced
    reactor.py        one trio task that reads and writes all connections
    server.py         what each method does
    control.py        io.schedulegate.Control: inspecting and steering, and who may
    story.py          what is known of one occurrence
    status.py         the parts of a status, as they go over the wire
    metrics.py        a status as Prometheus metrics
    sharing.py        what the gates of other hosts do, where all share one store
    service.py        the parts of a running gate, put together
    peer.py           who is at the other end of a connection (SO_PEERCRED)
    sockets.py        the listening socket: stale ones replaced, live ones refused
    paths.py          where socket, state and configuration are when nobody says so
    tzdata.py         which time zone data is in use: the newer of the system's and the wheel's
    log.py            log lines for people or as JSON
    systemd.py        sockets that systemd hands over, and what it wants to hear
    daemon.py         arguments, signals, start and stop
    ctl/              gatectl, one module per command group
"""
