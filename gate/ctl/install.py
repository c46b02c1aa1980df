"""`gatectl install-units`: the systemd units, with the path of this installation."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click

import gate
from gate.ctl.asking import WrongUsage

BINARIES = "/opt/schedule-gate/bin"
"""Where the units, as they are written, look for gate and gatectl."""
UNITS = Path("etc/systemd/system")
PLACES = {
    "gate.socket": UNITS / "gate.socket",
    "gate.service": UNITS / "gate.service",
    "gate-metrics.service": UNITS / "gate-metrics.service",
    "gate-clients.conf": Path("etc/sysusers.d/gate-clients.conf"),
}
DROP_INS = {name: UNITS / f"gate.service.d/{name}.conf" for name in ("redis", "static-user")}
HIDDEN = ("/home", "/root", "/run/user", "/tmp", "/var/tmp")
"""What ProtectHome= and PrivateTmp= hide from the service."""
NEXT = """then:
  systemd-sysusers                        # makes the group gate-clients
  systemctl daemon-reload
  systemctl enable --now gate.socket      # the first client starts the service
  usermod -a -G gate-clients USER         # for each user whose schedulers and workers ask"""


class File(NamedTuple):
    """Where a file goes, below the root, and what it holds."""

    path: Path
    text: str


@click.command("install-units", short_help="Put the systemd units in place.")
@click.option(
    "--root",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("/"),
    show_default=True,
    help="Below which folder, such as that of an image.",
)
@click.option("--with", "drop_ins", type=click.Choice(sorted(DROP_INS)), multiple=True, help="A drop-in to add.")
@click.option("--dry-run", is_flag=True, help="Print what would be written.")
def install_units(root: Path, drop_ins: tuple[str, ...], *, dry_run: bool) -> None:
    """Put the systemd units in place: socket, service, metrics exporter, and the group of the gate's clients.

    They start the gate that belongs to this gatectl. Nothing is started; files that stand there are replaced, so what
    is to be different belongs in a drop-in (`systemctl edit gate.service`).
    """
    started = Path(sys.argv[0]).absolute()
    binaries = started.parent if started.name == "gatectl" else Path(sys.executable).parent
    if str(binaries).startswith(HIDDEN):
        raise WrongUsage(
            f"{binaries}/gate is where the sandbox of the service does not look ({', '.join(HIDDEN)}): install"
            f" schedule-gate elsewhere, such as with `python3 -m venv {Path(BINARIES).parent}`"
        )
    for file in files(binaries, drop_ins):
        target = root / file.path
        if dry_run:
            click.echo(f"# {target}\n{file.text}")
            continue
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(file.text)
        except OSError as error:
            raise WrongUsage(f"{target} cannot be written: {(error.strerror or str(error)).lower()}") from error
        click.echo(f"wrote {target}")
    if not dry_run:
        click.echo(NEXT)


def files(binaries: Path, drop_ins: tuple[str, ...]) -> Iterator[File]:
    """All files, for a gate in that folder."""
    found = folder()
    for name, path in PLACES.items():
        yield File(path, (found / name).read_text().replace(BINARIES, str(binaries)))
    for name in drop_ins:
        yield File(DROP_INS[name], (found / f"{name}.conf").read_text())


def folder() -> Path:
    """Where the units are: in an installed package, or in the source tree."""
    package = Path(gate.__file__).parent
    installed = package / "units"
    return installed if installed.is_dir() else package.parent / "systemd"
