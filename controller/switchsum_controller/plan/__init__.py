"""Plans what switches should have: from jobs and trees to table entries, and from entries back to jobs; all pure.

| file | what it holds |
|---|---|
| `plan.py` | `plan_all`: from the jobs to the entries and groups of each switch |
| `rebuild.py` | from the entries back to the jobs, for a controller that was started anew |
| `windows.py` | how many slots a member keeps in flight |
"""
