"""Rank 0 asked for its report, with the token of the attempt (docs/architecture.md, the environment contract)."""

import hmac
import json
from typing import Any

import aiohttp

__all__ = ["ask_report"]

DEADLINE = aiohttp.ClientTimeout(total=3)
LARGEST = 4 << 20


async def ask_report(address: str, port: int, token: str) -> dict[str, Any] | None:
    """The answer to GET /v1/report, or None where there is none: not up yet, not reachable, not hetccl."""
    key = hmac.new(token.encode(), b"hetccl report", "sha256").hexdigest()
    host = f"[{address}]" if ":" in address else address
    try:
        async with (
            aiohttp.ClientSession(timeout=DEADLINE) as session,
            session.get(f"http://{host}:{port}/v1/report", headers={"Authorization": f"Bearer {key}"}) as answer,
        ):
            if answer.status != 200:
                return None
            report = json.loads(await answer.content.read(LARGEST))
    except (aiohttp.ClientError, TimeoutError, ValueError):
        return None
    return report if isinstance(report, dict) else None
