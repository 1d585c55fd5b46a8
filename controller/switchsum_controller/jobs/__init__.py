"""Jobs and their members; knows no switch, and callers pass the time.

| file | what it holds |
|---|---|
| `machines.py` | the states of members and incarnations, as tables |
| `job.py` | one job: its slots, its live incarnation, and the one that gathers |
| `registry.py` | all jobs: who joins, leaves, is lost or gives up |
| `slots.py` | ranges of slots, and from which number a new incarnation counts |
| `several_links.py` | members with several links |
| `reported.py` | what a member says of itself, and how fast that grows |
| `agreement.py` | who takes part in operations that may go on without some ranks |
| `late_calls.py` | who is late in collectives |
"""
