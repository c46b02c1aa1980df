"""The real `taskiq scheduler` command before a real gate and a real Redis: kills, restarts, doubles, faults."""
