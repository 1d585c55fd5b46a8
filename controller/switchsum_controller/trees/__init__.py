"""Several switches: which of them add for a job, what each has to do, and where a job goes when one stays away.

| file | what it holds |
|---|---|
| `fabric.py` | the switches of a controller, the links between them and the trees that jobs have |
| `fleet_file.py` | the file that describes them |
| `branch.py` | what one switch does for one tree of a job, and the entries that say so |
| `forest.py` | all trees of a job: members, bits and ranks of each switch |
| `rails.py` | workers with links to several switches: a tree for each |
| `moves.py` | which trees a job gets when a switch or a link stays away |

All but the reading of the file is pure: nothing here knows a connection or a clock.
"""
