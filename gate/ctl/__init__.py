"""gatectl: one module per command group.

__main__.py  the entry point; without the `service` extra, one line that says how to get it
cli.py       the command and what holds for all of its subcommands
asking.py    one call to the gate, and the exit code for each way it can end
times.py     times as people write them to times with a zone
output.py    tables, texts and times as people read them
status.py why.py week.py check.py steer.py reload.py history.py resend.py run.py demo.py    the subcommands
limits.py    the part of a status that is about limits and places
claimed.py   the occurrence that a command is the send of
placed.py    the place that a command runs in
command.py   a command that runs as if nobody stood between
signals.py   signals as events
pause.py lint.py    and their subcommands, pause, resume and lint
crons.py     what taskiq's cron code makes of an expression
sends.py     what a status says of the send side
files.py     answers from a configuration file, without a gate
marks.py     the week of a rule, minute by minute: what pictures draw
captions.py  what stands beside a picture
picture.py   the picture for a terminal
svg.py       the picture as a file
stage.py     the processes of the demo
demo_app.py  the program that `gatectl demo` gives to a real `taskiq scheduler`
"""
