"""The tests; `python3 tests/run.py` runs them."""
