"""hetccl: one set of collectives over the GPUs of several vendors.

Importing this package is cheap: it imports neither torch nor anything that is not in the standard library.
"""

__version__ = "0.1.0"

__all__ = ["__version__"]
