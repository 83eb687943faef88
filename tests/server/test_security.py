"""Tokens, Host headers and security headers."""

from __future__ import annotations

from tests.server.servers import asking, small

LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})


def test_a_token_is_required_except_for_the_page_and_health() -> None:
    with asking(small(), token="s3cret") as client:
        assert client.get("/").status_code == client.get("/health").status_code == 200
        paths = (
            "/about",
            "/entities",
            "/types",
            "/example",
            "/openapi.json",
            "/metrics",
            "/projects",
            "/projects/1/log",
            "/nothing",
            "/health/",
        )
        for path in paths:
            answer = client.get(path)
            assert answer.status_code == 401 and answer.json()["error"]["code"] == "token", path
            assert answer.headers["www-authenticate"] == "Bearer"
        assert client.post("/predict", content=b" " * 2_000_000).status_code == 401
        for wrong in (
            "Bearer",
            "Bearer s3cre",
            "Bearer s3crets",
            "Basic s3cret",
            "s3cret",
            "Bearer s3cr\xe9t".encode("latin-1"),
        ):
            assert client.get("/about", headers={"Authorization": wrong}).status_code == 401
        for right in ("Bearer s3cret", "bearer s3cret", "Bearer  s3cret "):
            assert client.get("/about", headers={"Authorization": right}).status_code == 200


def test_foreign_host_headers_are_rejected() -> None:
    with asking(small(), hosts=LOOPBACK) as client:
        for host in ("localhost", "localhost:8000", "127.0.0.1:1", "[::1]:8000", "LOCALHOST"):
            assert client.get("/health", headers={"Host": host}).status_code == 200, host
        for host in ("evil.example", "127.0.0.1.evil.example", "localhost.evil:80", "", "localhost:evil", "[::2]:80"):
            answer = client.get("/", headers={"Host": host})
            assert answer.status_code == 421 and answer.json()["error"]["code"] == "wrong-host", host
    with asking(small()) as client:
        assert client.get("/health", headers={"Host": "models.example"}).status_code == 200


def test_every_answer_has_security_headers() -> None:
    with asking(small(), token="t") as client:
        answers = [client.get(path) for path in ("/", "/health", "/about", "/nothing")]
        answers.append(client.options("/predict", headers={"Origin": "http://evil.example"}))
    for answer in answers:
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
        assert "access-control-allow-origin" not in answer.headers


def test_pages_of_other_sites_cannot_post() -> None:
    body = {"references": [["ann", "rome"]], "heads": ["bob"]}
    foreign = [
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site", "Origin": "http://127.0.0.1"},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:3333"},
    ]
    with asking(small()) as client:
        for headers in foreign:
            answer = client.post("/predict", json=body, headers=headers)
            assert answer.status_code == 403 and answer.json()["error"]["code"] == "cross-site"
        for headers in ({}, {"Origin": "http://127.0.0.1"}, {"Sec-Fetch-Site": "same-origin", "Origin": "https://a.b"}):
            assert client.post("/predict", json=body, headers=headers).status_code == 200


def test_the_openapi_document_has_the_token_and_the_types_of_exports() -> None:
    with asking(small(), token="s3cret") as client:
        document = client.get("/openapi.json", headers={"Authorization": "Bearer s3cret"}).json()
    assert document["components"]["securitySchemes"]["HTTPBearer"]["scheme"] == "bearer"
    assert document["paths"]["/predict"]["post"]["security"] == [{"HTTPBearer": []}]
    exported = document["paths"]["/projects/{number}/export"]["get"]["responses"]["200"]["content"]
    assert {"application/n-triples", "text/csv"} <= set(exported)
