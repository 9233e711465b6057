"""What a fork server may be told to do before it forks."""

import os


def imports():
    from omnistage.tests.fakes import fake_core  # noqa: F401


def fails():
    raise ImportError("no such library")


def waits():
    """Until the pipe that the environment names is opened for writing, and closed."""
    with open(os.environ["PRELOAD_PIPE"]) as pipe:
        pipe.read()
