"""The benchmark: `python -m tests.bench` measures the speed goals and prints one table.

    python -m tests.bench                       everything; 5 rounds take some 10 minutes
    python -m tests.bench --only G4 --only G5   what these goals need
    python -m tests.bench --rows 10000000       G7 against ten million rows: 2 GB of disk for a while
    python -m tests.bench --quick               one short round: does it still run?

Only ratios within one run mean anything: the gate and what it is compared with are measured in turn, in several
rounds, and a ratio is the median of the rounds' ratios. All servers are asked by the same load generator, over Unix
sockets, and answer the same bytes. The machine should have nothing else to do: the load average is printed.

    frames.py      calls and answers as bytes; how many connections ask how deep
    loadgen.py     the load generator: a process of its own, which needs only the standard library
    peers.py       the servers that the gate is compared with
    claimers.py    asyncio applications that claim: by the gate, by Redis
    processes.py   starts and stops all of these, and only these
    permits.py     procrastinate workers under a limit, gated, and without a gate
    rounds.py      what is measured in a round
    footprint.py   import, idle CPU, memory, start
    goals.py       the goals, and what was measured for them
    table.py       text

By itself, `python -m tests.bench.peer_worker` compares hours by the gate with stopping and starting a worker.
"""
