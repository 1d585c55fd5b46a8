"""Benchmarks: `python -m checks.bench` prints tables and writes checks/bench/results/records.json."""
