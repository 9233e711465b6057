"""Which jobs there are, who wants them, what they wait for, and where their results are.

- `keys`          recipes to plans: validated, defaults filled in, content-keyed
- `jobs`          a job and its legal transitions
- `events`        what a job's followers see, however slowly they read
- `leases`        who wants which jobs, and until when
- `store`         results and uploads under one byte budget
- `dispatch`      which jobs go to the engine when, and what an engine crash means for them
- `orchestrator`  all of it together; runs on one event loop, and no method waits
- `integrity`     whether the tables agree
"""
