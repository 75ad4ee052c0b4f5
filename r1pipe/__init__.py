"""r1pipe: the DeepSeek-R1 recipe as a command that a person can start, stop, inspect and trust."""

__version__ = "0.1.0"
