"""A main program that says what its environment is."""

import os
import sys

if __name__ == "__main__":
    sys.stdout.writelines(f"{name}={value}\n" for name, value in os.environ.items())
