"""hetccl: one set of collectives over the GPUs of several vendors.

What `__all__` names is the public interface, besides the PyTorch backend, which needs no import. Importing this package
is cheap: it imports neither torch nor anything that is not in the standard library before one of the names is used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from hetccl.errors import AuthenticationError, CollectiveError, HetcclError, ResourceError

if TYPE_CHECKING:
    from hetccl.communicator import Communicator, Identity
    from hetccl.dtypes import Op
    from hetccl.handle import Handle
    from hetccl.world import connect

__version__ = "0.1.0"

__all__ = [
    "AuthenticationError",
    "CollectiveError",
    "Communicator",
    "Handle",
    "HetcclError",
    "Identity",
    "Op",
    "ResourceError",
    "__version__",
    "connect",
]

_HOMES = {
    "Communicator": "communicator",
    "Handle": "handle",
    "Identity": "communicator",
    "Op": "dtypes",
    "connect": "world",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
