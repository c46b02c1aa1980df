"""Tests against the real service: bad input, faults, crashes, many clients, foreign clients."""
