"""The OmniStage runtime: one long-lived process that owns the device and serves every stage.

This package imports nothing by itself, so that a ComfyUI process can use `client` and
`protocol` without torch, diffusers or any other serving library being present.
"""
