"""Routes whose endpoints are admitted, timed and cancelled like every other request."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from fastapi.routing import APIRoute

from fewlink.server.service import Service


def admitted_routes(service: Service) -> type[APIRoute]:
    """The routes of an app: endpoints that are not coroutines run in the threads of the service, once it admits them.

    Coroutines enter the admission themselves, unless they answer at once.
    """

    class AdmittedRoute(APIRoute):
        def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
            if not inspect.iscoroutinefunction(endpoint):
                endpoint = admitted(path, endpoint, service)
            super().__init__(path, endpoint, **options)

    return AdmittedRoute


def admitted(kind: str, endpoint: Callable[..., Any], service: Service) -> Callable[..., Any]:
    """A coroutine with the parameters of an endpoint, which it runs as a lookup of this kind."""

    @functools.wraps(endpoint)
    async def admit(*args: Any, **parameters: Any) -> Any:
        return await service.look_up(kind, functools.partial(endpoint, *args, **parameters))

    del admit.__wrapped__  # type: ignore[attr-defined]  # FastAPI reads this signature, not that of the endpoint
    admit.__signature__ = inspect.signature(endpoint, eval_str=True)  # type: ignore[attr-defined]
    return admit
