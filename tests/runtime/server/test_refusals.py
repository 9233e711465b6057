"""Requests that are wrong, hostile or cut short: a clear 4xx, and the server goes on."""

import asyncio
import json

import pytest
from aiohttp import ClientSession

from omnistage.runtime.client.http import PROTOCOL_HEADER
from omnistage.runtime.protocol.recipe import blob_digest
from omnistage.tests.fakes.recipes import encode, request, upload_of

SUBMIT = request(encode("a")).to_json()


async def send(server, method, path, **options):
    async with (
        ClientSession() as session,
        session.request(method, server.url + path, **options) as response,
    ):
        return response.status, json.loads(await response.read()), response.headers


def job(**changes):
    return {**SUBMIT["jobs"][0], **changes}


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        (b"{", 400, "body"),
        (b"\xff\xfe", 400, "body"),
        (b"[" * 100_000, 400, "body"),
        (b'{"priority": ' + b"9" * 10_000 + b"}", 400, "body"),
        (b"[]", 400, "submit request"),
        ({**SUBMIT, "wings": 2}, 422, "wings"),
        ({**SUBMIT, "jobs": {}}, 422, "jobs"),
        ({**SUBMIT, "jobs": [1]}, 400, "job"),
        ({**SUBMIT, "owner": 7}, 422, "owner"),
        ({**SUBMIT, "owner": ""}, 422, "owner"),
        ({**SUBMIT, "priority": True}, 422, "priority"),
        ({**SUBMIT, "priority": 1.5}, 422, "priority"),
        ({**SUBMIT, "previews": 1}, 422, "previews"),
        ({**SUBMIT, "jobs": [job(), job()]}, 422, "id"),
        ({**SUBMIT, "jobs": [job(model="m")]}, 404, "model"),
        ({**SUBMIT, "jobs": [job(model="../x")]}, 404, "model"),
        ({**SUBMIT, "jobs": [job(stage="s")]}, 422, "stage"),
        ({**SUBMIT, "jobs": [job(params={"steps": float("nan")})]}, 422, "steps"),
        ({**SUBMIT, "jobs": [job(params={"steps": "1"})]}, 422, "steps"),
        ({**SUBMIT, "jobs": [job(params={"steps": 10**400})]}, 422, "steps"),
        ({**SUBMIT, "jobs": [job(inputs={"x": {"job": "later", "output": "o"}})]}, 422, "x"),
        ({**SUBMIT, "jobs": [job(inputs={"x": {"file": "/etc/passwd"}})]}, 422, "x"),
        ({**SUBMIT, "jobs": [job(inputs={"x": {"blob": "0" * 64}})]}, 422, "x"),
    ],
)
async def test_a_wrong_submission_is_refused_with_the_field_named(server, body, status, field):
    await server.start()
    data = body if isinstance(body, bytes) else json.dumps(body)
    got, answer, headers = await send(server, "POST", "/v1/jobs", data=data)
    assert (got, answer["error"].get("field")) == (status, field), answer
    assert answer["error"]["message"]
    assert headers[PROTOCOL_HEADER] == "1"
    assert server.orchestrator.stats()["remembered"] == 0
    assert (await server.client.health())["status"] == "ok"


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nothing", 404),
        ("GET", "/v1/jobs/../../etc/passwd", 404),
        ("GET", "/v1/jobs/%2e%2e%2f%2e%2e%2fetc/outputs/passwd", 404),
        ("PATCH", "/v1/jobs", 405),
        ("GET", "/v1/jobs/x", 404),
        ("GET", "/v1/jobs/x/events", 404),
        ("GET", "/v1/jobs/x?wait_s=-1", 422),
        ("GET", "/v1/jobs/x?wait_s=1e9", 422),
        ("POST", "/v1/leases/renew", 400),
    ],
)
async def test_wrong_addresses_get_json_too(server, method, path, status):
    await server.start()
    got, answer, _ = await send(server, method, path)
    assert got == status
    assert answer["error"]["message"]


async def test_leases_are_renewed_by_name(server):
    await server.start()
    status, answer, _ = await send(server, "POST", "/v1/leases/renew", json={"owners": [1]})
    assert (status, answer["error"]["field"]) == (422, "owners")
    await server.client.submit(request(encode("a"), owner="o/1 ü"))
    assert await server.client.renew(["o/1 ü", "nobody"]) == ["nobody"]
    await server.client.release("o/1 ü")
    assert await server.client.renew(["o/1 ü"]) == ["o/1 ü"]


FRAME = upload_of()[1]


def frame_of(body=b"", metadata="{}", **tensor):
    """A frame as a stranger may write it."""
    head = {"__metadata__": {"omnistage": metadata}, "x": {"data_offsets": [0, 0], **tensor}}
    text = json.dumps(head).encode()
    return len(text).to_bytes(8, "little") + text + body


@pytest.mark.parametrize(
    ("data", "status", "code"),
    [
        (b"", 400, "protocol_error"),
        (b"\xff" * 20, 413, "too_large"),
        (FRAME[:-1], 400, "protocol_error"),
        (FRAME + b"\0", 400, "protocol_error"),
        (FRAME.replace(b'"F32"', b'"F99"'), 400, "protocol_error"),
        (frame_of(dtype=["F32"], shape=[0]), 400, "protocol_error"),
        (frame_of(dtype="U8", shape=[-1]), 400, "protocol_error"),
        (frame_of(dtype="U8", shape=[True]), 400, "protocol_error"),
        (frame_of(dtype="U8", shape=[0] * 70), 400, "protocol_error"),
        (frame_of(dtype="U8", shape=[0, 10**30]), 400, "protocol_error"),
        (frame_of(dtype="U8", shape=[0], metadata="9" * 9999), 400, "protocol_error"),
        (frame_of(dtype="U8", shape=[0], metadata="[]"), 400, "protocol_error"),
        (upload_of(kind="conditioning")[1], 422, "invalid_request"),
        (upload_of(kind=["images"])[1], 422, "invalid_request"),
    ],
)
async def test_an_upload_that_is_no_proper_frame_is_refused(server, data, status, code):
    await server.start()
    got, answer, _ = await send(server, "PUT", f"/v1/blobs/{blob_digest(data)}", data=data)
    assert (got, answer["error"]["code"]) == (status, code), answer
    assert server.orchestrator.stats()["store"]["items"] == 0


async def test_an_upload_under_a_wrong_digest_is_refused(server):
    await server.start()
    status, answer, _ = await send(server, "PUT", f"/v1/blobs/{'0' * 64}", data=FRAME)
    assert (status, answer["error"]["field"]) == (422, "digest")


@pytest.mark.parametrize("chunked", [False, True])
async def test_an_upload_over_the_limit_is_refused_before_it_is_read(server, chunked):
    await server.start("server.max_body_mb=1")

    async def chunks():
        for _ in range(40):
            yield b"\0" * (1 << 16)

    data = chunks() if chunked else b"\0" * ((1 << 20) + 1)
    status, answer, _ = await send(server, "PUT", f"/v1/blobs/{'0' * 64}", data=data)
    assert (status, answer["error"]["code"]) == (413, "too_large")


async def test_an_upload_larger_than_the_store_is_refused(server):
    await server.start("store.budget_mb=1")
    digest, data = upload_of(size=300_000)
    status, answer, _ = await send(server, "PUT", f"/v1/blobs/{digest}", data=data)
    assert answer["error"]["code"] == "store_too_small"
    assert status >= 400


async def test_a_body_that_ends_early_costs_nothing(server):
    await server.start()
    _, writer = await asyncio.open_connection("127.0.0.1", server.port)
    head = f"POST /v1/jobs HTTP/1.1\r\nHost: localhost:{server.port}\r\nContent-Length: 500\r\n\r\n"
    writer.write(head.encode() + b'{"owner"')
    await writer.drain()
    writer.close()
    await asyncio.sleep(0.05)
    assert (await server.client.health())["status"] == "ok"


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "evil.example:8400"},
        {"Host": "127.0.0.1.evil.example"},
        {"Host": "["},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost.evil.example"},
    ],
)
@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/health"), ("POST", "/v1/jobs"), ("DELETE", "/v1/leases/o")]
)
async def test_pages_of_other_sites_are_kept_out(server, headers, method, path):
    await server.start()
    status, answer, _ = await send(server, method, path, headers=headers, json=SUBMIT)
    assert (status, answer["error"]["code"]) == (401, "unauthorised")
    assert server.orchestrator.stats()["remembered"] == 0


@pytest.mark.parametrize(
    "headers", [{"Host": "localhost:1"}, {"Host": "[::1]:1"}, {"Origin": "http://127.0.0.1:8188"}]
)
async def test_this_machine_is_let_in(server, headers):
    await server.start()
    status, _, _ = await send(server, "GET", "/v1/stats", headers=headers)
    assert status == 200


@pytest.mark.parametrize(
    ("header", "status"),
    [
        (None, 401),
        ("Bearer wrong", 401),
        ("Bearer ", 401),
        ("Basic s3cret", 401),
        ("Bearer ü", 401),
        ("Bearer s3cret", 200),
        ("bearer  s3cret", 200),
    ],
)
async def test_a_token_is_asked_for_when_there_is_one(server, header, status):
    await server.start("server.token=s3cret")
    headers = {"Host": "any.example"} | ({"Authorization": header} if header else {})
    got, _, _ = await send(server, "GET", "/v1/stats", headers=headers)
    assert got == status
    got, _, _ = await send(server, "GET", "/health", headers=headers)
    assert got == 200, "whether it lives is no secret"


async def test_a_client_with_the_token_works_and_one_without_is_told(server):
    from omnistage.runtime.client.client import RuntimeClient
    from omnistage.runtime.protocol.errors import Unauthorised

    await server.start("server.token=s3cret")
    await server.client.run(encode("a"), owner="o", client="c")
    async with RuntimeClient(server.url) as stranger:
        with pytest.raises(Unauthorised, match="OMNISTAGE_TOKEN"):
            await stranger.stats()
        with pytest.raises(Unauthorised):
            await anext(stranger.events("x"))
