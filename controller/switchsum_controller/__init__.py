"""The controller: it keeps the jobs, and keeps the switches as the jobs need them.

docs/walks.md says file by file how a member joins.  A folder imports only folders above it in this table:

| folder | what it holds |
|---|---|
| `tables/` | entries and groups of a switch as plain values, and the writes between two states |
| `jobs/` | jobs and their members; knows no switch and no clock |
| `trees/` | several switches: which ones add for a job, and what each has to do; other trees when one stays away |
| `plan/` | from jobs and trees to the entries of each switch, and back |
| `switches/` | connections to switches over P4Runtime, and which links there are between them |
| `service/` | the reconciler of all this behind one lock, its loop, and what members and users may call |

What plans trees for a network before any controller runs is `switchsum.planning`.
"""
