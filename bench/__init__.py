"""Benchmarks: `python -m bench` prints tables and writes bench/results/records.json."""
