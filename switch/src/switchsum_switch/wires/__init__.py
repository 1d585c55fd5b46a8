"""How batches of frames move between processes and machines: memory, sockets and interfaces, without Python in between.

How frames lie in memory:

- `rows`: rows in which the lanes of each frame begin on a cache line; everything below puts frames there.
- `outbox`: the layout of the memory that two processes share; `ring`: the kernels that put frames there and take them.
- `bodies`: one body of a result for many readers.
- `shared_memory`: how the two sides of such a link meet, and what they hand each other.

UDP sockets, and whole frames on an interface (AF_PACKET):

- `messages`: many messages with one system call, for both kinds of sockets.
- `datagrams`: UDP, many of one length as one (GSO and GRO); `encapsulation`: the headers around datagrams.
- `packetsocket`: AF_PACKET sockets and what the kernel says of interfaces; `packetring`: the ring that it fills.
- `segmentation`: many frames as one super-frame; `checksum`: IP's and UDP's.
"""
