"""The P4Runtime server of the embedded switch.

Where to begin: `service.py` (the gRPC methods), `arbitration.py` (who may write), `device.py` (which program runs),
`entities.py` (the entities of a program).  `schema.py` binds P4Info to the program.  Section numbers are those of the
P4Runtime specification 1.5.
"""
