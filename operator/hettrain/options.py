"""The flags of `hettrain operator`."""

import argparse
from typing import get_args

from hettrain.inject import PullPolicy
from hettrain.logs import LogFormat
from hettrain.serve import Settings

__all__ = ["add_options", "settings_from"]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    parser.add_argument(
        "--namespace",
        action="append",
        default=[],
        help="serve jobs of this namespace only (may be given several times; pool profiles are off then); default: all",
    )
    parser.add_argument("--hetccl-image", required=True, help="image with the hetccl tree, for jobs that name none")
    parser.add_argument(
        "--hetccl-pull-policy", choices=get_args(PullPolicy), default="IfNotPresent", help="when it is pulled"
    )
    parser.add_argument(
        "--hetccl-delivery",
        choices=["Auto", "ImageVolume", "InitContainer"],
        default="Auto",
        help="how it gets into pods of jobs that leave that open; Auto: what the API server supports",
    )
    parser.add_argument("--lease-name", default="hettrain", help="the Lease that says which operator acts")
    parser.add_argument("--lease-namespace", default="default", help="where that Lease is")
    parser.add_argument("--health-port", type=int, default=0, help="answer /healthz and /readyz there; 0: nowhere")
    parser.add_argument(
        "--report-poll-seconds", type=float, default=5.0, help="how often rank 0 is first asked for its report"
    )
    parser.add_argument("--log-format", choices=get_args(LogFormat), default="text", help="lines or JSON")


def settings_from(options: argparse.Namespace) -> Settings:
    """The parsed flags."""
    return Settings(
        hetccl_image=options.hetccl_image,
        hetccl_pull_policy=options.hetccl_pull_policy,
        hetccl_delivery=options.hetccl_delivery,
        namespaces=tuple(options.namespace),
        lease_name=options.lease_name,
        lease_namespace=options.lease_namespace,
        health_port=options.health_port,
        report_poll_seconds=options.report_poll_seconds,
        log_format=options.log_format,
    )
