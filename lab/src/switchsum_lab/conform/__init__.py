"""A kit that plays the rules of a slot against any switch over the wire, and says which rule the switch breaks.

`facts` says which job the kit plays, `wires` moves its frames, `cases` and `table` are what is played, `play` compares
each answer with that of `protocol.slot_rules`, `run` plays the cases, and `report` shows what came of them.  Nothing
else in switchsum imports this package.
"""
