"""`gate`, and `python -m gate`: run the service in the foreground."""

import sys


def main() -> int:
    """Run the service; without the `service` extra, say in one line how to get it."""
    try:
        from gate.daemon import main as run
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("gate"):
            raise
        sys.stderr.write(f"gate: {error.name} is missing: pip install 'schedule-gate[service]'\n")
        return 2
    return run(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
