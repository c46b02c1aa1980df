"""What several tests share: real servers and clocks, found or skipped with a reason."""

import sys


def tell(measured: str) -> None:
    """Say what was measured; `pytest -s` or `-rP` shows it."""
    sys.stdout.write(f"measured: {measured}\n")
