"""Switches as the controller reaches them: over P4Runtime, one by one and all together.

| file | what it holds |
|---|---|
| `client.py` | a P4Runtime client: one stream, reads and writes |
| `schema.py` | entries and groups as P4Runtime's messages, and back |
| `switch_session.py` | one session with a switch: program, tables, cells, counters |
| `connection.py` | what outlives a session: what is on the switch, and what errors mean |
| `fleet.py` | all switches: a change comes to all of them or to none |
| `lldp.py`, `neighbours.py` | which links there are, from frames that switches send one another |
| `discovery.py` | the links of a fleet whose file does not name them, before the controller begins |
"""
