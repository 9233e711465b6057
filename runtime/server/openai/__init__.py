"""What OpenAI's clients speak: chat completions over the orchestrator's jobs.

- `chat`      the route                       `errors`   every failure in OpenAI's form
- `request`   the checked request             `messages` its messages as a conversation
- `media`     media parts, within a budget    `image`, `audio`, `video`  their decoders
- `work`      jobs for as long as a request   `answer`   replies and chunks
- `stream`    server-sent events              `transcript`  what of a text is still to be sent
"""
