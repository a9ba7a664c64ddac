"""`hettrain webhook`."""

import argparse
from typing import get_args

from hettrain.admission.rotation import Names
from hettrain.admission.server import Settings, run
from hettrain.inject import PullPolicy
from hettrain.logs import LogFormat
from hettrain.plan import Context

__all__ = ["add"]


def add(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    parser.add_argument("--namespace", required=True, help="where the Secret and the Service are")
    parser.add_argument("--secret", required=True, help="the Secret for the certificate; it exists, and may be empty")
    called = parser.add_mutually_exclusive_group(required=True)
    called.add_argument("--service", help="the Service that the API server calls")
    called.add_argument("--host", help="the host name that the API server calls, where it is not a Service")
    parser.add_argument("--configuration", required=True, help="the ValidatingWebhookConfiguration")
    parser.add_argument("--port", type=int, default=9443, help="where to answer")
    parser.add_argument("--hetccl-image", required=True, help="image with the hetccl tree, for jobs that name none")
    parser.add_argument(
        "--hetccl-pull-policy", choices=get_args(PullPolicy), default="IfNotPresent", help="when it is pulled"
    )
    parser.add_argument("--health-port", type=int, default=0, help="answer /healthz and /readyz there; 0: nowhere")
    parser.add_argument("--log-format", choices=get_args(LogFormat), default="text", help="lines or JSON")
    parser.set_defaults(run=lambda options: run(_settings(options)))


def _settings(options: argparse.Namespace) -> Settings:
    return Settings(
        names=Names(
            namespace=options.namespace,
            secret=options.secret,
            configuration=options.configuration,
            host=options.host or f"{options.service}.{options.namespace}.svc",
        ),
        # By init container: it is the larger of the two pods, and every API server takes it.
        context=Context("InitContainer", options.hetccl_image, options.hetccl_pull_policy),
        port=options.port,
        health_port=options.health_port,
        log_format=options.log_format,
    )
