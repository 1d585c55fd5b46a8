"""The controller that runs: one reconciler behind one lock, its loop, and what members and users may call.

| file | what it holds |
|---|---|
| `config.py` | what a controller is told at its start |
| `reconciler.py` | lock, clock, jobs, switches and settings; brings switches up to date, admits members |
| `rerouting.py` | the writes that bring a running job to other trees |
| `upkeep.py` | the loop: connects switches, handles events, notices silence |
| `members.py` | answers members: join, ready, reform, attend, leave |
| `agreements.py` | answers members who ask who takes part in an operation, and has that written |
| `users.py` | answers users: jobs, slots, counters, links |
| `views.py` | what users are shown, made of jobs and switches |
| `refusals.py` | why jobs and members were refused of late |
| `server.py` | gRPC: the table of methods, messages and errors |
| `controller.py` | these parts put together |

Whoever calls the reconciler holds its lock.  `members.py` and `users.py` are given the reconciler; neither knows gRPC.
"""
