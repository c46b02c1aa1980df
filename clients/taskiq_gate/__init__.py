"""The gate in front of a taskiq scheduler."""
