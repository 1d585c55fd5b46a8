"""The controller: it keeps the jobs, and keeps the switch as the jobs need it.

Where to begin: `machines.py` (the states of members and incarnations), `jobs.py` (who is in which job), `plan.py` (the
table entries that follow from the jobs), `entries.py` (how the switch is brought there), `daemon.py` (all of it, driven
by calls, frames and time).  The first four are pure: they know no switch and no clock.
"""
