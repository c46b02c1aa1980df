"""Hostile frames against a real gate: `python -m tests.fuzz --frames 10000000`; a short run is in tests/process."""
