"""Where an engine core lives: a thread of this process, or a process of its own.

- `executor`   what every executor offers, and what it tells its listener
- `core_spec`  how to build the core, as data that can cross a process border
- `drive`      the loop that runs a core, the same in a thread and in a process
- `inline`     a thread          `process`  a child process     `group`  engines by name
- `child`      how a child process is started, listened to and ended
- `forked`     starts engine processes by forking `zygote`, which has done the slow imports
- `worker`     main program of an engine process
- `codec`      tasks and events as frames, and frames on a socket
- `backoff`    how long to wait before a crashed engine is started again
- `diffusion`  the entry point that builds the diffusion core
"""
