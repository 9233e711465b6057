"""The native API over HTTP and WebSocket.

- `services`  what the routes answer from          `app`     routes, start and end
- `guard`     who may talk to the runtime          `errors`  every failure as JSON
- `body`      reading requests within limits       `shelf`   opening models off the loop
- `jobs`, `events`, `pictures`, `blobs`, `leases`, `status`, `unload`  the routes
- `engines`   one for all diffusion, one for each autoregressive stage
- `openai`    the same runtime for OpenAI clients
- `serve`     run the server until it is told to stop
"""
