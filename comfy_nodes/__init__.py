"""The node pack: what runs inside ComfyUI's Python and talks to a runtime.

Needs the standard library, aiohttp, numpy, torch, Pillow and ComfyUI's own modules, nothing
else. It computes nothing: a node says which job it wants, waits, and passes on a handle.

- `values`, `plans`      what flows between nodes, and what each node asks for (pure)
- `planner`              the same, for a whole prompt, before it runs (pure)
- `precheck`, `fit`      what of it the models will refuse, as `problem` says it (pure)
- `schemas`, `guidance`  what models say of their parameters; names of a guider's (pure)
- `media`                frames to and from IMAGE, AUDIO, VIDEO and LATENT
- `host`                 all that is asked of ComfyUI's own modules
- `io_loop`, `bell`      threads: one that talks to runtimes; who wakes the others
- `runtimes`, `catalogue`, `leases`   the connection to runtimes
- `run`, `display`, `playback`   the jobs of one node, what it shows and what it plays of them
- `queue_ahead`, `middleware`   submit what waits in the queue; refuse what cannot work
- `nodes`                the nodes, one file per stage
"""
