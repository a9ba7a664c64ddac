"""A device plug-in that offers simulated GPUs to a real kubelet, and remembers which it handed out.

The kubelet, the scheduler and the extended resource are real. No device is behind it: a container that is given GPUs
finds their ids in SIMULATED_GPUS, and no device file.
"""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc

from tests.cluster.device_plugin_api import VERSION, message
from tests.cluster.processes import poll

ENVIRONMENT = "SIMULATED_GPUS"


class SimulatedGpus:
    """COUNT simulated devices under an extended resource's name, on the node whose device plug-in folder is given."""

    def __init__(self, folder: Path, resource: str, count: int) -> None:
        self.folder, self.resource = folder, resource
        self.ids = [f"{resource.partition('.')[0]}-{number}" for number in range(count)]
        self.allocated: list[list[str]] = []
        """What the kubelet asked for: the ids of each container, in the order of the calls."""
        self._stopped = threading.Event()
        self._server = grpc.server(ThreadPoolExecutor(4))

    def start(self, timeout: float = 30) -> None:
        """Serve, and register with the kubelet; TimeoutError where it does not listen within timeout seconds."""
        unary, stream = grpc.unary_unary_rpc_method_handler, grpc.unary_stream_rpc_method_handler
        serialize = lambda reply: reply.SerializeToString()  # noqa: E731
        handlers = {
            "GetDevicePluginOptions": unary(self._options, message("Empty").FromString, serialize),
            "ListAndWatch": stream(self._devices, message("Empty").FromString, serialize),
            "Allocate": unary(self._allocate, message("AllocateRequest").FromString, serialize),
        }
        service = grpc.method_handlers_generic_handler(f"{VERSION}.DevicePlugin", handlers)
        self._server.add_generic_rpc_handlers((service,))
        endpoint = f"{self.resource.replace('/', '-')}.sock"
        kubelet = self.folder / "kubelet.sock"
        poll(f"the kubelet listens for device plug-ins at {kubelet}", kubelet.exists, timeout)
        self._server.add_insecure_port(f"unix:{self.folder / endpoint}")
        self._server.start()
        with grpc.insecure_channel(f"unix:{kubelet}") as channel:
            register = channel.unary_unary(f"/{VERSION}.Registration/Register", serialize, message("Empty").FromString)
            request = message("RegisterRequest")(version=VERSION, endpoint=endpoint, resource_name=self.resource)
            register(request, timeout=timeout, wait_for_ready=True)

    def stop(self) -> None:
        """Stop serving; the kubelet then counts the devices as unhealthy."""
        self._stopped.set()
        self._server.stop(grace=2).wait()

    def _options(self, request: Any, context: grpc.ServicerContext) -> Any:
        return message("DevicePluginOptions")()

    def _devices(self, request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        device = message("Device")
        yield message("ListAndWatchResponse")(devices=[device(ID=name, health="Healthy") for name in self.ids])
        while context.is_active() and not self._stopped.wait(0.5):
            continue

    def _allocate(self, request: Any, context: grpc.ServicerContext) -> Any:
        answers = []
        for container in request.container_requests:
            ids = sorted(container.devices_ids)
            self.allocated.append(ids)
            variable = message("Env")(key=ENVIRONMENT, value=",".join(ids))
            answers.append(message("ContainerAllocateResponse")(envs=[variable]))
        return message("AllocateResponse")(container_responses=answers)
