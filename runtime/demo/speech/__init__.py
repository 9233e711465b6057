"""The embedded demo voice: a tiny Qwen2.5-Omni that says digits and a few other words.

Owns its data, training, recogniser and evaluation. Serving code never imports it.
"""
