"""Jobs and their members, and the table entries that follow from them; knows no switch, and callers pass the time.

| file | what it holds |
|---|---|
| `machines.py` | the states of members and incarnations, as tables |
| `job.py` | one job: its slots, its live incarnation, and the one that gathers |
| `registry.py` | all jobs: who joins, leaves, is lost or gives up |
| `slots.py` | ranges of slots, and from which number a new incarnation counts |
| `links.py` | members with several links |
| `windows.py` | how many slots a member keeps in flight |
| `plan.py` | from the jobs to the entries and groups of each switch |
| `entries.py` | entries and groups, and the writes that lead from one state to another |
| `rebuild.py` | from the entries back to the jobs, for a controller that was started anew |
"""
