import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { until } from "../support/until.ts";
import { bodyBytesMax, good, json, type MadeUp, startMadeUp } from "./edge-support.ts";

let made: MadeUp;
beforeAll(async () => {
  made = await startMadeUp();
});
afterAll(() => made.stop());

interface Sent {
  headers?: Record<string, string>;
  body?: unknown;
  text?: string;
}

async function ask(method: string, path: string, { headers = { ...good, ...json }, body, text }: Sent = {}) {
  const sent = text ?? (body === undefined ? undefined : JSON.stringify(body));
  const response = await fetch(made.url + path, {
    method,
    headers,
    ...(sent !== undefined && { body: sent }),
  });
  const answered = await response.text();
  const parsed = () => JSON.parse(answered) as Record<string, unknown>;
  return { status: response.status, headers: response.headers, text: answered, json: parsed };
}

const post = (path: string, body: unknown) => ask("POST", path, { body });

describe("REST", () => {
  test("path, query and body meet in one input, the path wins", async () => {
    expect((await post("/api/v1/things", { name: "n" })).status).toBe(201);
    const updated = await ask("PUT", "/api/v1/things/t%2F1?limit=3&unknown=1", {
      body: { name: "n", id: "x" },
    });
    expect(updated.json()).toEqual({ limit: 3, name: "n", id: "t/1" });
    expect((await ask("PATCH", "/api/v1/things/t1", { body: { name: "n" } })).json()).toEqual({
      name: "n",
      id: "t1",
    });
    const listed = await ask("GET", "/api/v1/things?limit=5&deep=true&names=a,b&names=c");
    expect(listed.json()).toEqual({ limit: 5, deep: true, names: ["a", "b", "c"] });
    const deleted = await ask("DELETE", "/api/v1/things/t1");
    expect([deleted.status, deleted.text]).toEqual([204, ""]);
  });

  test("a key of several segments and a body of bytes reach the binding as sent", async () => {
    const put = await ask("PUT", "/api/v1/buckets/b/keys/a/b%20c/d", {
      headers: { ...good, "Content-Type": "application/octet-stream" },
      text: "12345",
    });
    expect(put.json()).toEqual({ bucket: "b", key: "a/b c/d", size: 5 });
    expect(put.headers.get("etag")).toBe('"7"');
    expect((await ask("PUT", "/api/v1/buckets/b/keys/%zz", { text: "1" })).status).toBe(400);
  });

  test.each([
    [{}, "name", "name: required"],
    [{ name: "" }, "name", "name: must not be empty"],
    [{ name: 5 }, "name", "name: must be a string"],
    [{ name: "n", limit: "5" }, "limit", "limit: must be an integer"],
    [{ name: "n", limit: 11 }, "limit", "limit: must be at most 10"],
    [{ name: "n", kind: "c" }, "kind", "kind: must be one of a, b"],
    [{ name: "n", colour: "red" }, "colour", "colour: unknown field"],
    [{ name: "n", triggers: [{ event: "e" }, {}] }, "triggers[1].event", "triggers[1].event: required"],
    [{ name: "n", triggers: [{ event: "e", odd: 1 }] }, "triggers[0].odd", "triggers[0].odd: unknown field"],
    [[1], "body", "body: must be an object"],
  ])("input %j is refused, naming %s", async (body, field, message) => {
    const refused = await post("/api/v1/things", body);
    expect(refused.status).toBe(400);
    expect(refused.json()).toEqual({ error: message, message, code: "invalid_argument", field });
  });

  test("a query parameter of the wrong form is refused", async () => {
    expect((await ask("GET", "/api/v1/things?limit=many")).json().message).toBe("limit: must be an integer");
  });

  test("malformed JSON and a body that is not JSON are named", async () => {
    const malformed = await ask("POST", "/api/v1/things", { text: '{"name":' });
    expect(malformed.status).toBe(400);
    expect(malformed.json().message).toStartWith("malformed JSON");
    const form = await ask("POST", "/api/v1/things", {
      headers: { ...good, "Content-Type": "text/plain" },
      text: "{}",
    });
    expect(form.status).toBe(415);
    expect(form.json().code).toBe("unsupported_media_type");
  });

  test("credentials and the role gate come before the input is read", async () => {
    const nobody = await ask("POST", "/api/v1/things", { headers: json, text: "{" });
    expect([nobody.status, nobody.json().message]).toEqual([401, "Authentication required"]);
    const wrong = await ask("POST", "/api/v1/things", {
      headers: { ...json, Authorization: "Bearer bad" },
      text: "{",
    });
    expect([wrong.status, wrong.json().error]).toEqual([401, "Invalid API key"]);
    const denied = await ask("POST", "/api/v1/forbidden", { text: "{" });
    expect([denied.status, denied.json().message]).toEqual([403, "Insufficient permissions"]);
    expect(made.ran).not.toContain("forbidden");
    const weak = { headers: { Authorization: "Bearer weak" } };
    expect((await ask("GET", "/api/v1/things", weak)).status).toBe(200);
    expect((await ask("DELETE", "/api/v1/things/t1", weak)).status).toBe(403);
    expect((await ask("GET", "/open", { headers: {} })).json().kind).toBe("anonymous");
  });

  test("faults, the store's troubles and defects each have their form", async () => {
    const seen = async (what: string) => {
      const { status, json: body, headers } = await post(`/api/v1/throw/${what}`, {});
      return { status, retryAfter: headers.get("retry-after"), ...body() };
    };
    expect(await seen("stale")).toMatchObject({ status: 409, error: "STALE_EXECUTION", code: "aborted" });
    expect(await seen("word")).toMatchObject({
      status: 400,
      code: "policy_effect_allow_deprecated",
      message: "policy_effect_allow_deprecated: effect 'allow' is gone",
    });
    expect(await seen("state")).toMatchObject({ status: 409, code: "failed_precondition" });
    expect(await seen("unavailable")).toMatchObject({ status: 503, code: "unavailable", retryAfter: "1" });
    expect(await seen("lock")).toMatchObject({ status: 503, code: "unavailable", retryAfter: "1" });
    expect(await seen("full")).toMatchObject({ status: 429, retryAfter: "1" });
    const defect: Record<string, unknown> = await seen("defect");
    expect(defect).toMatchObject({ status: 500, code: "internal" });
    const id = /^internal error \(id (req_\w+)\)$/.exec(String(defect.message))?.[1];
    expect(made.logged.find((line) => line.includes(String(id)))).toContain("secret detail");
    expect(JSON.stringify(defect)).not.toContain("secret");
  });

  test("a body above the limit is refused, promised or in pieces", async () => {
    const large = await ask("POST", "/api/v1/things", { text: "x".repeat(bodyBytesMax + 1) });
    expect([large.status, large.json().code]).toEqual([413, "payload_too_large"]);
    const pieces = new ReadableStream({
      start(controller) {
        for (let piece = 0; piece < 3; piece++) controller.enqueue(new Uint8Array(bodyBytesMax / 2));
        controller.close();
      },
    });
    const inPieces = await fetch(`${made.url}/api/v1/things`, {
      method: "POST",
      headers: { ...good, ...json },
      body: pieces,
    });
    expect([inPieces.status, ((await inPieces.json()) as { code: string }).code]).toEqual([
      413,
      "payload_too_large",
    ]);
  });

  test("unknown routes, wrong methods, HEAD and preflights", async () => {
    const unknown = await ask("GET", "/api/v1/nothing");
    expect([unknown.status, unknown.json().code]).toEqual([404, "not_found"]);
    const wrong = await ask("DELETE", "/api/v1/things");
    expect([wrong.status, wrong.headers.get("allow")]).toEqual([405, "POST, GET, HEAD, OPTIONS"]);
    const head = await ask("HEAD", "/api/v1/things?limit=5");
    expect([head.status, head.text, head.headers.get("content-type")]).toEqual([200, "", "application/json"]);
    const preflight = await ask("OPTIONS", "/svc.v1.SvcService/Trigger", {
      headers: {
        Origin: "http://localhost:3000",
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization,x-svc-environment",
      },
    });
    expect(preflight.status).toBe(204);
    expect(preflight.headers.get("access-control-allow-origin")).toBe("*");
    for (const name of ["Authorization", "X-Svc-Environment", "If-Match", "Connect-Timeout-Ms"]) {
      expect(preflight.headers.get("access-control-allow-headers")).toContain(name);
    }
    expect(preflight.headers.get("access-control-allow-methods")).toContain("PATCH");
  });

  test("every answer carries the request's id and the headers of a careful server", async () => {
    const told = await ask("GET", "/open", { headers: { "X-Request-Id": "mine-1" } });
    expect([told.headers.get("x-request-id"), told.json().requestId]).toEqual(["mine-1", "mine-1"]);
    for (const path of ["/open", "/nothing", "/api/v1/things"]) {
      const { headers } = await ask("GET", path, { headers: {} });
      expect(headers.get("x-request-id")).toMatch(/^req_/);
      expect(headers.get("x-content-type-options")).toBe("nosniff");
      expect(headers.get("x-frame-options")).toBe("DENY");
      expect(headers.get("cache-control")).toBe("no-store");
      expect(headers.get("access-control-allow-origin")).toBe("*");
    }
  });

  test("a streamed answer ends its source when the client leaves", async () => {
    const before = made.streams.ended;
    const leave = new AbortController();
    const response = await fetch(`${made.url}/api/v1/export`, { headers: good, signal: leave.signal });
    expect(response.headers.get("content-type")).toBe("application/x-ndjson");
    const reader = response.body!.getReader();
    expect(new TextDecoder().decode((await reader.read()).value)).toStartWith('{"line":0}');
    leave.abort();
    await until(() => made.streams.ended > before, { about: "the export to end" });
  });

  test("an operation hears that its client has gone", async () => {
    const { open, ended } = made.streams;
    const leave = new AbortController();
    const asked = fetch(`${made.url}/api/v1/slow`, {
      method: "POST",
      headers: { ...good, ...json },
      body: '{"until":"abort"}',
      signal: leave.signal,
    }).catch(() => "left");
    await until(() => made.streams.open > open, { about: "the operation to start" });
    leave.abort();
    expect(await asked).toBe("left");
    await until(() => made.streams.ended > ended, { about: "the operation to end" });
  });

  test("every outcome is observed", async () => {
    made.observed.length = 0;
    await post("/api/v1/things", { name: "n" });
    await post("/api/v1/things", {});
    await ask("POST", "/api/v1/things", { headers: json });
    // What an earlier test has left is observed when it ends, which may be now.
    const told = made.observed
      .filter(({ operation }) => operation.name === "things.create")
      .map(({ operation, outcome, environmentId }) => [operation.name, outcome, environmentId]);
    expect(told).toEqual([
      ["things.create", "ok", "env_1"],
      ["things.create", "invalid_argument", "env_1"],
      ["things.create", "unauthenticated", ""],
    ]);
  });
});

test("pages and upgrades share the port", async () => {
  const page = await ask("GET", "/page", { headers: {} });
  expect([page.status, page.text]).toEqual([200, "<p>"]);
  expect((await ask("GET", "/ws/red")).json().message).toBe("upgrade wanted");
  const socket = new WebSocket(`${made.url.replace("http", "ws")}/ws/red`, ["svc.v1"]);
  const heard = new Promise((done) => socket.addEventListener("message", ({ data }) => done(data)));
  socket.addEventListener("open", () => socket.send("hello"));
  expect(await heard).toBe("red: hello");
  expect(socket.protocol).toBe("svc.v1");
  socket.close();
});

test("stop lets a request in flight end and cuts the rest at the deadline", async () => {
  const own = await startMadeUp();
  const slow = fetch(`${own.url}/api/v1/slow`, { method: "POST", headers: { ...good, ...json }, body: "{}" });
  await until(() => own.streams.open === 1, { about: "the request to start" });
  const stopped = own.listening.stop(5_000);
  expect((await slow).status).toBe(200);
  await stopped;
  await expect(fetch(`${own.url}/open`)).rejects.toThrow();

  const other = await startMadeUp();
  const stuck = fetch(`${other.url}/api/v1/slow`, {
    method: "POST",
    headers: { ...good, ...json },
    body: '{"until":"abort"}',
  }).then(
    () => "answered",
    () => "cut",
  );
  await until(() => other.streams.open === 1, { about: "the request to start" });
  await other.listening.stop(50);
  expect(await stuck).toBe("cut");
});
