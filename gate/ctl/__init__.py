"""gatectl: one module per command group.

__main__.py  the entry point; without the `service` extra, one line that says how to get it
cli.py       the command and what holds for all of its subcommands
asking.py    one call to the gate, and the exit code for each way it can end
times.py     times as people write them to times with a zone
output.py    tables, texts and times as people read them
status.py history.py resend.py demo.py    the subcommands
stage.py     the processes of the demo
demo_app.py  the program that `gatectl demo` gives to a real `taskiq scheduler`
"""
