"""A shop over HTTP, as FastAPI serves and describes it, which keeps what it was sent."""

import threading
import time
from collections.abc import Iterator
from typing import Annotated, Any

import pytest
import uvicorn
from fastapi import Body, FastAPI, Form, Header, HTTPException, Query, Request, Response, Security
from fastapi.responses import PlainTextResponse, RedirectResponse
from fastapi.security import APIKeyHeader, APIKeyQuery, HTTPBasic, HTTPBearer
from pydantic import BaseModel, Field


class Pet(BaseModel):
    name: str = Field(description="what it is called")
    tags: list[str] = []
    owner: "Person | None" = None


class Person(BaseModel):
    name: str
    pets: list[Pet] = []


class Shop:
    """A server in a thread, and what it was sent."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.app = FastAPI(title="shop")
        self._routes()
        config = uvicorn.Config(self.app, host="127.0.0.1", port=0, log_level="critical", lifespan="off")
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        while not self._server.started:
            time.sleep(0.005)
        self.port = self._server.servers[0].sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(10)

    def _routes(self) -> None:
        app = self.app

        @app.middleware("http")
        async def keep(request: Request, call_next: Any) -> Response:
            body = await request.body()
            raw_path = request.scope["raw_path"].decode()
            self.requests.append(
                {
                    "method": request.method,
                    "path": raw_path,
                    "query": request.scope["query_string"].decode(),
                    "headers": dict(request.headers),
                    "body": body.decode("utf-8", "replace"),
                }
            )
            return await call_next(request)

        @app.get("/pets/{pet_id}", operation_id="getPet", summary="Return a pet.")
        def get_pet(pet_id: str, x_lang: Annotated[str | None, Header()] = None) -> dict[str, Any]:
            return {"id": pet_id, "lang": x_lang}

        @app.get("/pets", operation_id="listPets")
        def list_pets(tag: Annotated[list[str], Query()] = (), best: int = 10) -> dict[str, Any]:
            return {"tags": tag, "best": best}

        @app.get("/pets/{pet_id}/secret", operation_id="secretOfPet", include_in_schema=False)
        def secret(pet_id: str) -> str:
            return "the vault"

        @app.head("/pets", operation_id="countPets")
        def count(response: Response) -> None:
            response.headers["x-count"] = "3"

        @app.post("/pets", operation_id="addPet", status_code=201)
        def add(pet: Pet, dry: bool = False) -> dict[str, Any]:
            return {"added": pet.model_dump(mode="json"), "dry": dry}

        @app.post("/login", operation_id="login")
        def login(user: Annotated[str, Form()], scopes: Annotated[list[str], Form()] = ()) -> dict[str, Any]:
            return {"user": user, "scopes": scopes}

        @app.put("/note", operation_id="note")
        def note(text: Annotated[str, Body(media_type="text/plain")]) -> str:
            return text

        @app.delete("/pets/{pet_id}", operation_id="dropPet", status_code=204)
        def drop(pet_id: str) -> None:
            return None

        @app.get("/me/bearer", operation_id="whoBearer")
        def bearer(found: Annotated[Any, Security(HTTPBearer(scheme_name="bearer"))]) -> Any:
            return {"said": "hello"}

        @app.get("/me/basic", operation_id="whoBasic")
        def basic(found: Annotated[Any, Security(HTTPBasic(scheme_name="basic"))]) -> Any:
            return found.username

        @app.get("/me/key", operation_id="whoKey")
        def key(found: Annotated[Any, Security(APIKeyHeader(name="X-Key", scheme_name="key"))]) -> Any:
            return f"your key is {found}"

        @app.get("/me/key/refused/{length}", operation_id="refusedWho")
        def refused(
            length: int, found: Annotated[Any, Security(APIKeyHeader(name="X-Key", scheme_name="key"))]
        ) -> Response:
            return PlainTextResponse(f"{'. ' * (length // 2)}{found} was refused", 403)

        @app.get("/me/query", operation_id="whoQuery")
        def query(found: Annotated[Any, Security(APIKeyQuery(name="key", scheme_name="query"))]) -> Any:
            return "you"

        @app.api_route("/fault/{kind}", methods=["GET"], operation_id="readFault")
        @app.api_route("/fault/{kind}", methods=["POST"], operation_id="writeFault")
        def fault(kind: str, request: Request) -> Response:
            return self._fault(kind)

    def _fault(self, kind: str) -> Response:
        if kind.isdecimal() and kind[0] != "3":
            raise HTTPException(int(kind), f"it is {kind}")
        if kind == "slow":
            time.sleep(1)
        if kind == "long":
            return PlainTextResponse("x" * 5_000)
        if kind == "elsewhere":
            return RedirectResponse("http://localhost:1/", 307)
        if kind in ("303", "307"):
            return RedirectResponse("/fault/loop", int(kind))
        if kind == "loop":
            return RedirectResponse("/fault/loop", 307)
        if kind == "image":
            return Response(b"\x89PNG", media_type="image/png")
        if kind == "file":
            return Response(b"%PDF", media_type="application/pdf")
        if kind == "no-json":
            return Response('{"a": NaN, ', media_type="application/json")
        if kind == "deep":
            return Response("[" * 100_000, media_type="application/json")
        if kind == "charset":
            return Response(b"caf\xe9", media_type="text/plain; charset=latin-9-or-so")
        return Response(b"x", headers={"content-encoding": "gzip"})


@pytest.fixture(scope="session")
def shop_server() -> Iterator[Shop]:
    shop = Shop()
    yield shop
    shop.stop()


@pytest.fixture
def shop(shop_server: Shop) -> Shop:
    shop_server.requests.clear()
    return shop_server
