"""gRPC between the processes of a job: who may connect, how servers listen, how clients call.

Control goes over these connections, never a frame: workers and commands call the controller, the controller the switch.

- `addresses`: the form of an address, and whether somebody listens there.
- `tls`: certificates, and the channels that use them.
- `serving`: ports and Unix sockets of servers.
- `threads`: threads that a daemon cannot do without, and pools of them for servers.
- `member_client`: what members call of the controller; `controller_client`: what users call as well.
- `starting`: how long a start may take, and what is said when nobody answers.

Nothing here loads numpy or the compiler.
"""
