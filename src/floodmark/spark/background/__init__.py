"""A local Spark in the background, which commands of one user attach to.

`spark: {keep_warm: 15m}` turns it on. The first command that needs Spark starts a server: a process
of its own, with Java and Python workers, and no terminal. Each command holds one connection while
it runs, and one for each job. A server that nobody uses for `keep_warm` ends by itself.

A server does not unpickle what it is sent: workers do. Everything that a command depends on comes
with its jobs: logins, the environment, the working folder and the umask. The server's own
environment holds only what Java and Python need to start.

Which server a command uses: that with its key, a hash of the code, Python, Java, Spark's settings,
the variables a process starts with, the user's groups, and this boot and its namespaces (`key.py`).
After an upgrade, or with other settings, the key is another one: another server starts, and the old
one ends when it is idle.

Files, in a folder that only the user can open (`place.py`), with mode 0600:

| file | |
| --- | --- |
| `KEY.lock` | locked (flock) by the process that starts the server, and then by the server |
| `KEY.secret` | what both sides prove that they know, in addition to their user id (`wire.py`) |
| `KEY.sock` | where the server listens; created when Spark has started |
| `KEY.log` | what the server did; at most two files of 128 KB |

| step | a crash right after it leaves |
| --- | --- |
| a command locks `KEY.lock` | a free lock |
| it starts the server, which inherits the lock | a server that starts, is not used, and ends |
| the server starts Spark | a free lock; Java ends, since its stdin is closed |
| the server writes `KEY.secret`, listens at `KEY.sock` | files that the next server replaces |
| a command attaches, and is admitted by the server | nothing, see below |
| a command sends a job, the server runs it | see below |
| the server removes its files but the log | free names: the next command starts another |
| the server stops Spark, and ends | nothing |

- A command that dies: its connections end, and the server cancels its jobs. Files of cancelled
  tasks are in no manifest, since commands write the manifests.
- A server that dies: its commands fail, as with a dead Spark. No job is sent twice: attempt numbers
  of another Spark would name the same files again. The next command starts another server.
- A server that is about to end while a command connects: attaching is granted under the lock under
  which the server decides to end. A command that was not granted it starts another.
- Two commands at once share one server, and each gets its share of the task slots (Spark's fair
  scheduler). Of two commands that find no server, one locks the file, and the other one waits.
- A process number that is used again: nothing here depends on one.
- Anything that keeps a command from attaching (no home directory, a full disk, a server that does
  not answer or that another one replaced the secret of) is reported as a warning, and the command
  runs with a Spark of its own.
"""
