"""What several tests share: real servers and clocks, found or skipped with a reason."""
