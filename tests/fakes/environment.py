"""A main program that prints its environment."""

import os

if __name__ == "__main__":
    for name, value in os.environ.items():
        print(f"{name}={value}")
