"""Describes what the controller keeps on a switch: table entries and multicast groups; knows no job.

| file | what it holds |
|---|---|
| `entries.py` | entries and groups as plain values; `diff`: the writes that lead from one state to another |
| `names.py` | the names of the tables, and the numbers that have a meaning of their own |
"""
