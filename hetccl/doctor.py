"""`hetccl doctor`: what this process would use here, and why. It looks and tries, and changes nothing."""

import contextlib
import importlib.metadata
import ipaddress
import json
import os
import platform
import resource
import socket
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import IntEnum
from pathlib import Path
from types import ModuleType

import hetccl
from hetccl import settings
from hetccl.errors import ResourceError
from hetccl.settings import Settings, SettingsError

__all__ = ["Finding", "Level", "examine", "message", "report"]

TRY_SECONDS = 3.0
"""How long a peer may take to answer."""

DEFAULT_PORT = 29500
"""Of torch's rendezvous: a host that refuses it is there all the same."""

_VERDICTS = ("hetccl works here", "hetccl works here, with fall-backs", "hetccl does not work here")


class Level(IntEnum):
    """How good a finding is; the worst of them is the exit code."""

    OK = 0
    FALLBACK = 1
    BROKEN = 2


@dataclass(frozen=True)
class Finding:
    """What was found of one thing. `advice` says what to do, where something is to be done."""

    name: str
    level: Level
    text: str
    advice: str = ""


Findings = Iterator[Finding]


def examine(environment: Mapping[str, str] = os.environ, peer: str = "") -> list[Finding]:
    """Everything, in the order of the report. Nothing that is found raises."""
    found: list[Finding] = []
    chosen, finding = _settings(environment)
    parts: list[tuple[str, Callable[[], Findings]]] = [
        ("versions", _versions),
        ("settings", lambda: iter([finding])),
        ("takeover", lambda: _takeover(environment)),
        ("devices", lambda: _devices(chosen)),
        ("core", _core),
        ("shm", lambda: _shared_memory(chosen)),
        ("interfaces", lambda: _interfaces(chosen)),
        ("rdma", lambda: _rdma(chosen)),
    ]
    if peer:
        parts.append(("peer", lambda: _peer(peer, chosen)))
    for name, look in parts:
        try:
            found.extend(look())
        except Exception as error:  # whatever it is: the rest is still worth knowing
            found.append(Finding(name, Level.BROKEN, f"looking at it failed: {type(error).__name__}: {error}"))
    return found


def report(found: Sequence[Finding], *, as_json: bool) -> str:
    """The findings, for people or for programs."""
    worst = max(finding.level for finding in found)
    if as_json:
        rows = [{**asdict(finding), "level": finding.level.name.lower()} for finding in found]
        return json.dumps({"verdict": _VERDICTS[worst], "exit": int(worst), "findings": rows}, indent=1)
    width = max(len(finding.name) for finding in found)
    lines = []
    for finding in found:
        lines.append(f"{finding.level.name.lower():8}  {finding.name:{width}}  {finding.text}")
        if finding.advice:
            lines.append(f"{'':8}  {'':{width}}  -> {finding.advice}")
    return "\n".join([*lines, "", _VERDICTS[worst]])


MESSAGE_BYTES = 4096
"""What Kubernetes keeps of a termination message."""


def message(found: Sequence[Finding]) -> str:
    """The findings that are not well, the worst first, as JSON of at most MESSAGE_BYTES; the rest is left out."""
    rows: list[dict[str, str]] = []
    for finding in sorted(found, key=lambda finding: -finding.level):
        if finding.level is not Level.OK:
            row = {**asdict(finding), "level": finding.level.name.lower()}
            if len(json.dumps([*rows, row]).encode()) <= MESSAGE_BYTES:
                rows.append(row)
    return json.dumps(rows)


def _settings(environment: Mapping[str, str]) -> tuple[Settings, Finding]:
    """Those of a job, or what they would be without anything set."""
    plain = {settings.SWITCH: settings.HOST_VENDOR}
    try:
        chosen = settings.from_environment({**plain, **environment})
    except SettingsError as error:
        broken = Finding("settings", Level.BROKEN, str(error), "correct the variable; hetccl makes no groups before")
        return settings.from_environment(plain), broken
    if not settings.requested(environment):
        return chosen, Finding("settings", Level.OK, f"{settings.SWITCH} is not set: this process belongs to no job")
    simulated = ", simulated on the CPU" if chosen.simulated else ""
    text = f"vendor {chosen.vendor}{simulated}, pool {chosen.pool}, job {chosen.job or 'without a name'}"
    if not chosen.token:
        return chosen, Finding(
            "settings",
            Level.FALLBACK,
            f"{text}; no token: whoever reaches the ports of this job can join it",
            "name a file with a secret of the job in HETCCL_TOKEN_FILE",
        )
    return chosen, Finding("settings", Level.OK, text)


def _torch() -> ModuleType | None:
    try:
        import torch  # noqa: PLC0415 -- it may be missing, which is a finding
    except ImportError:
        return None
    return torch


def _versions() -> Findings:
    from hetccl.inject.takeover import OLDEST_TORCH  # noqa: PLC0415 -- only here

    libc = " ".join(platform.libc_ver()) or "an unknown C library"
    yield Finding("hetccl", Level.OK, f"{hetccl.__version__} at {Path(hetccl.__file__).parent}")
    yield Finding("python", Level.OK, f"{platform.python_version()}, {platform.machine()}, {libc}")
    torch = _torch()
    oldest = ".".join(map(str, OLDEST_TORCH))
    if torch is None:
        yield Finding("torch", Level.BROKEN, f"not installed for {sys.executable}", f"install torch {oldest} or newer")
        return
    version = str(torch.__version__)
    if tuple(int(part) for part in version.split(".")[:2]) < OLDEST_TORCH:
        yield Finding("torch", Level.BROKEN, f"{version} is too old", f"install torch {oldest} or newer")
    else:
        yield Finding("torch", Level.OK, version)


def _takeover(environment: Mapping[str, str]) -> Findings:
    if _torch() is None:
        return
    from hetccl.inject.bootstrap import hetccl_bootstrap  # noqa: PLC0415 -- only here

    c10d = sys.modules.get(hetccl_bootstrap.DISTRIBUTED)
    bootstraps = [sys.modules.get("hetccl_bootstrap"), hetccl_bootstrap]
    failures = [module._State.failure for module in bootstraps if module is not None and module._State.failure]
    if failures:
        yield Finding("takeover", Level.BROKEN, f'"nccl" makes no groups: {failures[0]}', "correct what it says")
    elif c10d is not None and getattr(c10d, "_hetccl", False):
        yield Finding("takeover", Level.OK, '"nccl" is hetccl in this process')
    elif settings.requested(environment):
        yield Finding(
            "takeover",
            Level.BROKEN,
            f'{settings.SWITCH} is set, but "nccl" is not hetccl in this process',
            "put the tree's bootstrap folder on PYTHONPATH, or install hetccl with pip; start Python without -S and -I",
        )
    elif any(point.name == "hetccl" for point in importlib.metadata.entry_points(group="torch.backends")):
        yield Finding("takeover", Level.OK, f'"nccl" is torch\'s own; with {settings.SWITCH} set it would be hetccl')
    else:
        yield Finding(
            "takeover",
            Level.FALLBACK,
            "no entry point of hetccl is installed for this Python: a job would have to inject it",
            "pip install hetccl, or hetccl inject DIR and DIR/bootstrap/launch COMMAND",
        )


def _devices(chosen: Settings) -> Findings:
    torch = _torch()
    if torch is None:
        return
    stack = next((f"{name} {v}" for name, v in (("CUDA", torch.version.cuda), ("ROCm", torch.version.hip)) if v), "")
    names = (
        [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())] if torch.cuda.is_available() else []
    )
    text = (
        f"{len(names)} GPUs ({', '.join(names)}), {stack}" if names else f"no GPU; torch is built for {stack or 'CPUs'}"
    )
    if chosen.needs_device and not names:
        yield Finding(
            "devices",
            Level.BROKEN,
            f"{text}, but this is a rank of vendor {chosen.vendor}",
            "check the pod's GPU request and for which vendor torch is built, or set HETCCL_SIMULATE=1 on every rank",
        )
        return
    yield Finding("devices", Level.OK, text + (", and simulated ones" if chosen.simulated else ""))
    if names:
        yield Finding(
            "islands",
            Level.OK,
            "a group of GPUs of one vendor is the vendor library's; one of several vendors carries CPU tensors only",
        )
    else:
        yield Finding("islands", Level.OK, "none: every rank is reached by the wires below")


def _core() -> Findings:
    from hetccl.runners import core  # noqa: PLC0415 -- needs torch

    if core.library() is not None:
        yield Finding("core", Level.OK, f"the C core at {core.FILE}")
    elif core.FILE.exists():
        yield Finding(
            "core",
            Level.FALLBACK,
            f"{core.FILE} does not fit this machine or this release: plain Python runs the collectives, slowly",
            "install hetccl again, with a C compiler or from a wheel for this machine",
        )
    else:
        yield Finding(
            "core",
            Level.FALLBACK,
            "the C core was not built: plain Python runs the collectives, slowly",
            "install hetccl where there is a C compiler, or from a wheel",
        )


def _shared_memory(chosen: Settings) -> Findings:
    from hetccl.runners import runner  # noqa: PLC0415 -- needs torch
    from hetccl.wires import segment  # noqa: PLC0415

    advice = "give the pod an emptyDir of medium Memory at /dev/shm, or docker run --shm-size"
    if not runner().shares_memory:
        yield Finding("shm", Level.FALLBACK, "not without the C core: ranks of one host use tcp")
        return
    if not chosen.share_memory:
        yield Finding("shm", Level.FALLBACK, "NCCL_SHM_DISABLE is 1: ranks of one host use tcp")
        return
    need = 2 * runner().ring_bytes()
    try:
        tried = segment.Segment.create(need)
    except ResourceError as error:
        yield Finding("shm", Level.FALLBACK, f"{error}: ranks of one host use tcp", advice)
        return
    tried.unlink()
    room = os.statvfs(segment.FOLDER)
    free, whole = room.f_bavail * room.f_frsize, room.f_blocks * room.f_frsize
    text = f"{segment.FOLDER} has {free >> 20} of {whole >> 20} MiB free, for {free // need} pairs of ranks"
    few = free // need < 8 * 7 // 2
    yield Finding(
        "shm", Level.FALLBACK if few else Level.OK, text + ("; the others use tcp" if few else ""), few * advice
    )


def _interfaces(chosen: Settings) -> Findings:
    from hetccl.wires.interfaces import choose, interfaces  # noqa: PLC0415 -- only here

    present = interfaces()
    try:
        used = choose(chosen.socket_ifname, present)
    except ResourceError as error:
        yield Finding("interfaces", Level.BROKEN, str(error), "correct NCCL_SOCKET_IFNAME on this node")
        return
    told = "; ".join(f"{each.name} ({', '.join(each.addresses)})" for each in used)
    others = ", ".join(each.name for each in present if each not in used)
    text = f"ranks are told {told or 'no address'}" + (f"; not {others}" if others else "")
    if any(each.name != "lo" for each in used):
        yield Finding("interfaces", Level.OK, text)
    else:
        yield Finding("interfaces", Level.FALLBACK, f"{text}: ranks on other hosts cannot reach this one")


def _rdma(chosen: Settings) -> Findings:
    folder = Path("/sys/class/infiniband")
    adapters = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    limit, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    memlock = "unlimited" if limit == resource.RLIM_INFINITY else f"{limit >> 10} KiB"
    text = f"adapters: {', '.join(adapters) or 'none'}; memory that may be locked (ulimit -l): {memlock}"
    if chosen.transport == "RDMA":
        yield Finding("rdma", Level.BROKEN, f"HETCCL_TRANSPORT is RDMA, which this release has no wire for; {text}")
    elif adapters and limit != resource.RLIM_INFINITY:
        advice = "IPC_LOCK is inert for users other than root: raise the container runtime's memlock limit"
        yield Finding("rdma", Level.FALLBACK, f"{text}; not used by this release, tcp is", advice)
    else:
        yield Finding("rdma", Level.OK, f"{text}; not used by this release")


def _peer(peer: str, chosen: Settings) -> Findings:
    from hetccl.wires.interfaces import choose, interfaces  # noqa: PLC0415 -- only here

    host, port = _split(peer)
    try:
        answers = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        yield Finding(
            "peer", Level.BROKEN, f"{host} has no address: {error.strerror}", "check the name, and DNS in this pod"
        )
        return
    with contextlib.suppress(ResourceError):
        present = interfaces()
        told = {each.name for each in choose(chosen.socket_ifname, present)}
    for family, _, _, _, address in answers:
        where = str(address[0])
        source, failure = _reach(family, (where, *address[1:]))
        through = next((each.name for each in present if source in each.addresses), "an unknown interface")
        itself = not failure and ipaddress.ip_address(source).is_loopback
        if failure:
            yield Finding(
                "peer",
                Level.BROKEN,
                f"{host} ({where}) port {port} cannot be reached: {failure}",
                "check routes, firewalls and NetworkPolicies between the two hosts",
            )
        elif through not in told and not itself:
            yield Finding(
                "peer",
                Level.FALLBACK,
                f"{host} ({where}) is reached through {through}, whose address ranks are not told",
                f"NCCL_SOCKET_IFNAME={through} makes ranks use it",
            )
        else:
            yield Finding("peer", Level.OK, f"{host} ({where}) is reached through {through}, from {source}")


def _split(peer: str) -> tuple[str, int]:
    """HOST, HOST:PORT, [IPv6]:PORT or an IPv6 address."""
    bare, _, port = peer.rpartition(":")
    if bare and port.isdigit() and (bare.startswith("[") or ":" not in bare):
        return bare.strip("[]"), int(port)
    return peer.strip("[]"), DEFAULT_PORT


def _reach(family: int, address: tuple[object, ...]) -> tuple[str, str]:
    """The own address towards a peer's, and why that cannot be reached; a host that refuses is there."""
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.settimeout(TRY_SECONDS)
        try:
            probe.connect(address)
        except ConnectionRefusedError:
            pass
        except TimeoutError:
            return "", f"no answer within {TRY_SECONDS:g} s"
        except OSError as error:
            return "", error.strerror or str(error)
    with socket.socket(family, socket.SOCK_DGRAM) as route:
        route.connect(address)
        return str(route.getsockname()[0]), ""
