"""Soak: jobs that come and go for a long time on one switch, with loss and killed workers, every sum checked."""
