"""The real `taskiq scheduler` command before a real gate and a real Redis: restarts, kills, second schedulers, faults."""
