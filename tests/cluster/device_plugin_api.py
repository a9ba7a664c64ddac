"""The messages of the kubelet's device plug-in protocol (v1beta1) that a plug-in of simulated devices needs."""

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

VERSION = "v1beta1"

# Message -> fields in the order of their numbers, from 1; a trailing * repeats, an upper-case type is a message.
# A map is a repeated pair on the wire.
_MESSAGES = {
    "Empty": (),
    "DevicePluginOptions": ("bool pre_start_required", "bool get_preferred_allocation_available"),
    "RegisterRequest": ("string version", "string endpoint", "string resource_name", "DevicePluginOptions options"),
    "Device": ("string ID", "string health"),
    "ListAndWatchResponse": ("Device* devices",),
    "ContainerAllocateRequest": ("string* devices_ids",),
    "AllocateRequest": ("ContainerAllocateRequest* container_requests",),
    "Env": ("string key", "string value"),
    "ContainerAllocateResponse": ("Env* envs",),
    "AllocateResponse": ("ContainerAllocateResponse* container_responses",),
}
_Field = descriptor_pb2.FieldDescriptorProto
_SCALARS = {"bool": _Field.TYPE_BOOL, "string": _Field.TYPE_STRING}


def _file() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(name="device_plugin.proto", package=VERSION, syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for number, declaration in enumerate(fields, 1):
            kind, field_name = declaration.split()
            base = kind.rstrip("*")
            field = message.field.add(name=field_name, number=number)
            field.label = _Field.LABEL_REPEATED if kind.endswith("*") else _Field.LABEL_OPTIONAL
            if base in _SCALARS:
                field.type = _SCALARS[base]
            else:
                field.type, field.type_name = _Field.TYPE_MESSAGE, f".{VERSION}.{base}"
    return file


_pool = descriptor_pool.DescriptorPool()
_pool.Add(_file())


def message(name: str) -> Any:
    """The class of one of the protocol's messages."""
    return message_factory.GetMessageClass(_pool.FindMessageTypeByName(f"{VERSION}.{name}"))
