"""Trees for a network before any controller runs: topologies, bounds, and trees packed by capacity (extra `trees`).

| file | what it holds |
|---|---|
| `topology.py` | networks as files and shapes: hosts, switches, links and their rates |
| `paths.py`, `bounds.py` | what a network lets through: flows and cuts |
| `loads.py` | what the trees of several jobs put on links and switches, and what is left |
| `trees.py` | the fewest trees that reach the best rate, and shares of the slots |
| `sources.py` | a topology as users name it: a file, or a shape |
| `runs.py` | what `switchsum run --topology` starts: switches, trees, and who sits where |

`switchsum topology` and `switchsum tree` (`cli/topology.py`, `cli/tree.py`) show what they find.
"""
