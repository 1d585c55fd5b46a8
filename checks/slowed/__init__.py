"""Slowdowns that gates of speed must notice: `python -m checks.slowed`."""
