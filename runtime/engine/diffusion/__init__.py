"""The diffusion core: module calls of many requests, batched step by step.

A request runs its model's own code as a coroutine. A call of a heavy module does not compute:
it suspends the request. The core picks compatible calls of all requests, runs the module once
for them, splits the result and resumes each request.

- `settings`   what can be configured
- `call`       a suspended call, and the pending result that stands for it
- `proxy`      the stand-in for a module
- `request`    one task's coroutine, its pending calls and its progress
- `collate`    merging calls by their spec, and splitting results
- `cost`       the measured cost curve that says when a batch is full
- `policy`     which calls go first (pure, no torch)
- `preview`    small pictures from latents
- `engine`     the core: admit, pick, run, resume
- `residency`  which weights are in memory, under a budget
- `build`      a core from settings and configured models
"""
