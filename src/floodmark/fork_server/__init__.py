"""A process that has imported everything, from which `floodmark sync` is forked.

It exists only beside a Spark in the background: `spark: {keep_warm: …}`. Importing what a sync
needs takes longer than reading and loading a thousand rows. So the command that a user starts
imports next to nothing (`client.py`). It hands its arguments, its environment, its umask, its
working folder and its three standard streams to the fork server, passes signals on, and ends as
its child ends. The child runs the same program as any command (`command.py`).

The server has one thread, which never waits for anybody (`server.py`). It is found at a socket
whose name is a hash of everything that a process cannot change later: Python and its options, the
variables that libraries read when they start, users and groups, limits, namespaces (`meeting.py`).
It checks before each fork that the installed code is what it has imported.

| step | a crash right after it leaves |
| --- | --- |
| a command connects, both prove who they are, it sends its facts | nothing |
| the server forks | a child that ends: it waits for the word to begin |
| the child has become the command; it says that it is ready | the same |
| the command says: begin | a run that ends like any killed command |
| the child ends, the server sends how | nothing |

- A command that is refused, or has to wait, runs by itself. After it has said "begin", never.
- A command that is killed, even with SIGKILL: its connection ends, and the server kills the child.
- A child that is killed: the command ends by the same signal.
- A server that is killed: the kernel kills its children, and their commands kill themselves.
- The background Spark ends, or has to: the server accepts no more commands, and ends after the
  last child.
- A command that is stopped with Ctrl-Z stops its child, too. SIGSTOP cannot be passed on.
"""
