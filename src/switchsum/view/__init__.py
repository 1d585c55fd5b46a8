"""Gathers what is known of jobs, in one form for commands, page and metrics."""
