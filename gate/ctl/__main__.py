"""`gatectl`, and `python -m gate.ctl`: inspect and steer the gate."""

import sys


def main() -> int:
    """Run gatectl; without the `service` extra, say in one line how to get it."""
    try:
        from gate.ctl.cli import run
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("gate"):
            raise
        sys.stderr.write(f"gatectl: {error.name} is missing: pip install 'schedule-gate[service]'\n")
        return 2
    return run(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
