"""Where an engine core lives: a thread of this process, or a process of its own.

- `executor`   what every executor offers, and what it tells its listener
- `core_spec`  how to build the core, as data that can cross a process border
- `drive`      the loop that runs a core, the same in a thread and in a process
- `inline`     a thread          `process`  a child process          `worker`  its main program
- `codec`      tasks and events as frames, and frames on a socket
- `backoff`    how long to wait before a crashed engine is started again
- `diffusion`  the entry point that builds the diffusion core
"""
