"""What the environment says: the only place in hetccl that reads it.

The names and their meaning are the environment contract of docs/architecture.md.
"""

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from hetccl.communicator import Identity

SWITCH = "HETCCL_VENDOR"
"""Setting this variable is what switches hetccl on."""

HOST_VENDOR = "cpu"
"""The vendor of pools that have no GPUs."""

TRANSPORTS = ("Auto", "RDMA", "TCP")
BALANCE = ("Off", "Static", "Auto")
BALANCE_LOSS = ("Mean", "Sum")
TRACE_SIZE = 2000
"""Calls that the flight recorder keeps where nothing else is said, as in PyTorch."""

TRACE_SIGNALS = ("SIGUSR1", "SIGUSR2", "SIGHUP")
CHECKS = {"headers": False, "full": True}
LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
_HIDES_GPUS = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")

_Value = TypeVar("_Value")


class SettingsError(ValueError):
    """A variable has a value that is not allowed. The message names the variable, the value and what is allowed."""

    def __init__(self, variable: str, found: str, allowed: str) -> None:
        super().__init__(f"{variable} is {found!r}; allowed: {allowed}")
        self.variable = variable


@dataclass(frozen=True)
class TraceSettings:
    """The flight recorder: `size` calls are kept, 0: none."""

    size: int = TRACE_SIZE
    file: str = ""
    """Where dumps go: the path but for the rank's number at its end, or before `.json`. Empty: nowhere."""
    pipe: str = ""
    """A named pipe by which a dump is asked for: its path but for the rank's number and `.pipe`. Empty: none."""
    signal: str = ""
    """The signal that asks for a dump. Empty: none."""


@dataclass(frozen=True)
class Settings:
    """The settings of one rank."""

    vendor: str
    pool: str
    job: str
    transport: str
    token: bytes = field(repr=False)
    """The attempt's token, or empty where the job has none."""
    report_port: int | None
    """The TCP port of rank 0's report, 1 to 65535; None: no report."""
    simulate: bool
    home: Path | None
    """The root of the hetccl tree, where hetccl was injected."""
    log_level: str
    socket_ifname: str
    """NCCL_SOCKET_IFNAME as it stands; empty: not set."""
    balance: str = "Off"
    """Off, Static or Auto: whether ranks of unequal speed get unequal shares of each batch."""
    balance_loss: str = "Mean"
    """Mean: losses are means over a rank's samples. Sum: they are sums, or normalised over all ranks by the script."""
    weight: float | None = None
    """The speed of one rank of the pool beside those of other pools, for Static."""
    share_memory: bool = True
    """False where NCCL_SHM_DISABLE is 1: ranks of one host use sockets too."""
    checks: bool = False
    """True where HETCCL_CHECK is full: all ranks compare what they call before any data moves."""
    trace: TraceSettings = TraceSettings()

    @property
    def needs_device(self) -> bool:
        """True where the rank has to work on a GPU of its vendor."""
        return self.vendor != HOST_VENDOR and not self.simulate

    @property
    def simulated(self) -> bool:
        """True where the rank stands for a GPU vendor's but works on the CPU."""
        return self.vendor != HOST_VENDOR and self.simulate

    def identity(self) -> "Identity":
        """What the other ranks learn of this one."""
        from hetccl.communicator import Identity  # noqa: PLC0415 -- the import of settings stays light

        return Identity(
            vendor=self.vendor,
            pool=self.pool,
            transport=self.transport,
            token=self.token,
            job=self.job,
            simulated=self.simulated,
            interfaces=self.socket_ifname,
            share_memory=self.share_memory,
            checks=self.checks,
        )


def requested(environment: Mapping[str, str] = os.environ) -> bool:
    """True where this process belongs to a job of ours."""
    return SWITCH in environment


def from_environment(environment: Mapping[str, str] = os.environ) -> Settings:
    """The settings that `environment` describes. Raises SettingsError for the first variable that is wrong."""
    vendor = _name(environment, SWITCH)
    return Settings(
        vendor=vendor,
        pool=_name(environment, "HETCCL_POOL", vendor),
        job=environment.get("HETCCL_JOB", ""),
        transport=_one_of(environment, "HETCCL_TRANSPORT", {value: value for value in TRANSPORTS}, "Auto"),
        token=_token(environment, "HETCCL_TOKEN_FILE"),
        report_port=_port(environment, "HETCCL_REPORT_PORT"),
        simulate=_one_of(environment, "HETCCL_SIMULATE", {"1": True, "0": False, "": False}, "0"),
        home=Path(environment["HETCCL_HOME"]) if environment.get("HETCCL_HOME") else None,
        log_level=_one_of(environment, "HETCCL_LOG", {value: value for value in LOG_LEVELS}, "INFO"),
        socket_ifname=environment.get("NCCL_SOCKET_IFNAME", ""),
        balance=_one_of(environment, "HETCCL_BALANCE", {value: value for value in BALANCE}, "Off"),
        balance_loss=_one_of(environment, "HETCCL_BALANCE_LOSS", {value: value for value in BALANCE_LOSS}, "Mean"),
        weight=_weight(environment, "HETCCL_WEIGHT"),
        share_memory=_one_of(environment, "NCCL_SHM_DISABLE", {"1": False, "0": True, "": True}, "0"),
        checks=_one_of(environment, "HETCCL_CHECK", CHECKS, "headers"),
        trace=_trace(environment),
    )


def of_process(environment: Mapping[str, str] = os.environ) -> Settings:
    """The settings of a process that uses hetccl by name: of the host's CPUs where no job says otherwise."""
    return from_environment({SWITCH: HOST_VENDOR, **environment})


def hide_gpus() -> None:
    """Make this process and its children see no GPU. Works until the vendor's runtime is initialised."""
    for variable in _HIDES_GPUS:
        os.environ[variable] = ""


def _name(environment: Mapping[str, str], variable: str, default: str = "") -> str:
    value = environment.get(variable, "") or default
    if not value or not value.replace("-", "").replace(".", "").isalnum() or value != value.lower():
        raise SettingsError(variable, value, "a name of lower-case letters, digits, '-' and '.'")
    return value


def _one_of(environment: Mapping[str, str], variable: str, allowed: Mapping[str, _Value], default: str) -> _Value:
    value = environment.get(variable, default)
    if value not in allowed:
        raise SettingsError(variable, value, ", ".join(name for name in allowed if name))
    return allowed[value]


def _trace(environment: Mapping[str, str]) -> TraceSettings:
    job = environment.get("HETCCL_JOB", "").replace("/", "-") or "job"
    folder = Path(tempfile.gettempdir()) / f"hetccl-trace-{os.getuid()}" / job
    size = _first(environment, "HETCCL_TRACE_SIZE", "TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
    file = _first(environment, "HETCCL_TRACE_FILE", "TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
    pipe = _first(environment, "HETCCL_TRACE_PIPE", "TORCH_NCCL_DEBUG_INFO_PIPE_FILE")
    signals = {name: name for name in TRACE_SIGNALS} | {"": ""}
    if size is not None and not (size.isascii() and size.isdigit()):
        raise SettingsError("HETCCL_TRACE_SIZE", size, "a number of calls, 0 or more")
    return TraceSettings(
        size=TRACE_SIZE if size is None else int(size),
        file=str(folder / "rank_") if file is None else file,
        pipe=pipe or "",
        signal=_one_of(environment, "HETCCL_TRACE_SIGNAL", signals, ""),
    )


def _first(environment: Mapping[str, str], *variables: str) -> str | None:
    """The value of the first of these that is set."""
    return next((environment[variable] for variable in variables if variable in environment), None)


def _port(environment: Mapping[str, str], variable: str) -> int | None:
    value = environment.get(variable, "")
    if not value:
        return None
    if not (value.isascii() and value.isdigit() and 1 <= int(value) <= 65535):
        raise SettingsError(variable, value, "a TCP port, 1 to 65535")
    return int(value)


def _weight(environment: Mapping[str, str], variable: str) -> float | None:
    value = environment.get(variable, "")
    if not value:
        return None
    try:
        weight = float(value)
    except ValueError:
        weight = 0.0
    if not 0.001 <= weight <= 1000:
        raise SettingsError(variable, value, "a number from 0.001 to 1000")
    return weight


def _token(environment: Mapping[str, str], variable: str) -> bytes:
    path = environment.get(variable, "")
    if not path:
        return b""
    try:
        token = Path(path).read_bytes().strip()
    except OSError as error:
        raise SettingsError(variable, path, f"the path of a readable file ({error.strerror})") from None
    if not token:
        raise SettingsError(variable, path, "the path of a file with the job's token (the file is empty)")
    return token
