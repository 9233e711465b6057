"""What travels between a client and the runtime, and nothing else.

Standard library and numpy only: this package is the one thing that code inside ComfyUI's
Python and code inside the runtime's Python share.

- `frames`    a message with tensors, in the safetensors layout
- `recipe`    jobs, the references between them, and handles that carry their own recipe
- `messages`  submit requests and replies, job events, model descriptions
- `errors`    the error tree
"""

PROTOCOL_VERSION = 1
"""Raised when a message changes in a way an older peer would misread."""

FRAME_MEDIA_TYPE = "application/x-omnistage-frame"
"""HTTP content type of an encoded `frames.Frame`."""
