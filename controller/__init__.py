"""The controller: it keeps the jobs, and keeps the switches as the jobs need them.

A member joins through these files: `service/server.py` (gRPC: which method serves which call), `service/members.py`
(what it answers), `jobs/registry.py` and `jobs/machines.py` (who is in which job, in which state), `service/keeper.py`
(hellos and admission), `jobs/plan.py` (the table entries that follow), `switches/fleet.py` (how switches get them).

| folder | what it holds |
|---|---|
| `jobs/` | jobs and their members, and the table entries that say so; knows no switch and no clock |
| `trees/` | several switches: which ones add for a job, and what each has to do; other trees when one stays away |
| `switches/` | connections to switches over P4Runtime, and which links there are between them |
| `service/` | the keeper of all this behind one lock, its loop, and what members and users may call |

What plans trees for a network before any controller runs is `switchsum.planning`.
"""
