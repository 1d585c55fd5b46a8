"""Fuzzing: one file for each target, run by atheris (`python -m checks.fuzz TARGET`) and, shortly, by the tests.

A target has `seeds()`, inputs to begin with, and `Target`, whose `run(data)` must not raise, hang or touch memory that
is not its own.  Frames lie at the end of a page behind which nothing may be touched, for fuzzers see nothing of what
generated code does.
"""
