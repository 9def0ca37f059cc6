import { afterAll, beforeAll, expect, test } from "bun:test";
import { buildDocs } from "../../src/docs/site.ts";
import { apiPages } from "../../src/edge/api-page.ts";
import { docsPages } from "../../src/edge/docs-pages.ts";
import { type ListeningEdge, listenEdge } from "../../src/edge/http.ts";
import { probes } from "../../src/edge/probes.ts";
import { services } from "../../src/edge/services.ts";
import { systemClock } from "../../src/kit/clock.ts";
import { Fault } from "../../src/kit/fault.ts";
import { systemIds } from "../../src/kit/ids.ts";
import { silentLog } from "../../src/kit/log.ts";
import type { Operation } from "../../src/kit/operation.ts";
import { NotWritable } from "../../src/store/store.ts";

let listening: ListeningEdge;
const world = {
  stored: true,
  reason: "",
  connected: true,
  warnings: [] as string[],
  troubles: [] as string[],
};

beforeAll(async () => {
  const clock = systemClock();
  const registry: Operation[] = probes({
    clock,
    version: "1.2.3",
    store: {
      async ping() {
        if (world.stored) return;
        throw world.reason ? new NotWritable(world.reason, "secret host") : new Error("secret host");
      },
    },
    bus: { connected: () => world.connected },
    warnings: () => world.warnings,
    troubles: () => world.troubles,
    capabilities: { authRequired: true, transports: ["rest", "connect"], features: ["events"] },
    registry: () => registry,
  });
  listening = await listenEdge({
    edge: {
      clock,
      ids: systemIds(clock),
      log: silentLog,
      async authenticate(request) {
        if (request.headers.get("authorization") !== "Bearer good") throw new Fault("unauthenticated", "no");
        return { caller: { kind: "key", id: "ak", orgId: "org", roles: [] }, environmentId: "env" };
      },
      gate: () => {},
      observe: () => {},
    },
    registry,
    services,
    pages: [...apiPages, ...docsPages(buildDocs)],
    hostname: "127.0.0.1",
    port: 0,
    bodyBytesMax: 1024,
  });
});
afterAll(() => listening.stop(0));

const get = async (path: string, headers: Record<string, string> = {}) => {
  const answer = await fetch(listening.url + path, { headers });
  return { status: answer.status, type: answer.headers.get("content-type"), text: await answer.text() };
};
const getJson = async (path: string, headers?: Record<string, string>) => {
  const { status, text } = await get(path, headers);
  return [status, JSON.parse(text)];
};
const rpc = async (method: string) => {
  const answer = await fetch(`${listening.url}/svc.v1.SvcService/${method}`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: "{}",
  });
  return [answer.status, await answer.json()];
};

test("health follows the database, readiness the bus as well", async () => {
  const at = expect.stringMatching(/^\d{4}-.*Z$/);
  expect(await getJson("/health")).toEqual([200, { status: "healthy", timestamp: at, version: "1.2.3" }]);
  expect(await getJson("/ready")).toEqual([200, { status: "ready" }]);
  expect(await rpc("Health")).toMatchObject([200, { status: "healthy", timestamp: at }]);
  world.troubles = ["loop runs.states fails: 42P21"];
  const degraded = { status: "degraded", warnings: world.troubles };
  expect(await getJson("/health")).toMatchObject([200, degraded]);
  expect(await rpc("Health")).toMatchObject([200, { status: "degraded" }]);
  expect(await getJson("/ready")).toEqual([200, { status: "ready" }]);
  world.troubles = [];
  world.connected = false;
  expect((await get("/health")).status).toBe(200);
  expect(await getJson("/ready")).toEqual([
    503,
    { status: "not_ready", issues: ["the message bus is not connected"] },
  ]);
  world.connected = true;
  world.stored = false;
  world.warnings = ["integrity: 1 breach"];
  expect(await getJson("/health")).toMatchObject([
    503,
    { status: "unhealthy", warnings: ["the database does not answer", "integrity: 1 breach"] },
  ]);
  expect(await getJson("/ready")).toEqual([
    503,
    { status: "not_ready", issues: ["the database does not answer"] },
  ]);
  expect(await rpc("Health")).toMatchObject([200, { status: "unhealthy" }]);
  // What the store says for everybody, and never what it says for the log.
  world.reason = "the database has no room left";
  expect(await getJson("/ready")).toEqual([503, { status: "not_ready", issues: [world.reason] }]);
  world.stored = true;
  world.warnings = [];
});

test("capabilities are public, on REST and RPC", async () => {
  const told = { version: "1.2.3", transports: ["rest", "connect"], features: ["events"] };
  expect(await getJson("/api/v1/capabilities")).toEqual([200, { ...told, auth_required: true }]);
  expect(await rpc("GetCapabilities")).toEqual([200, told]);
});

test("routes want a credential, any will do; the document, which says nothing of tenants, wants none", async () => {
  expect((await get("/api/v1/routes")).status).toBe(401);
  expect((await get("/api/v1/routes", { Authorization: "Bearer good" })).status).toBe(200);
  const [open, known] = await Promise.all([
    get("/openapi.json"),
    get("/api/v1/openapi.json", { Authorization: "Bearer good" }),
  ]);
  expect([open.status, known.status, open.text === known.text]).toEqual([200, 200, true]);
  const [, manifest] = await getJson("/api/v1/routes", { Authorization: "Bearer good" });
  expect(manifest.routes).toContainEqual({
    name: "server.health",
    method: "GET",
    path: "/health",
    action: "public",
    protocol: "rest",
  });
  expect(manifest.count).toBe(manifest.routes.length);
});

test("the page for people comes whole from this server", async () => {
  const page = await get("/docs/api");
  expect([page.status, page.type]).toEqual([200, "text/html; charset=utf-8"]);
  expect(page.text).not.toContain("http");
  for (const [, file] of page.text.matchAll(/<(?:script src|link rel="stylesheet" href)="([^"]+)"/g)) {
    const { status, text } = await get(file!);
    expect([status, text.length > 100]).toEqual([200, true]);
  }
});
