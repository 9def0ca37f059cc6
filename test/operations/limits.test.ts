import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { systemClock } from "../../src/kit/clock.ts";
import { everyWay, go } from "../support/every-route.ts";
import { startTestServer, type TestServer } from "../support/server.ts";

describe("limits against abuse", () => {
  let server: TestServer;
  beforeAll(async () => {
    const clock = systemClock();
    server = await startTestServer({
      engine: "libsql",
      settings: { keyRateLimit: 1, keyRateBurst: 5 },
      // A thousand times slower than the test: what is used up stays so.
      clock: { ...clock, elapsed: () => clock.elapsed() / 1_000 },
    });
  });
  afterAll(() => server.stop());

  const asking = async (ask: () => Promise<{ status: number }>, count: number) => {
    const statuses: number[] = [];
    for (let n = 0; n < count; n++) statuses.push((await ask()).status);
    return statuses;
  };

  test("a key that asks too often is told when to come back, on both protocols; others and the public go on", async () => {
    const statuses = await asking(() => server.api("/api/v1/roles"), 8);
    expect(statuses).toEqual([200, 200, 200, 200, 200, 429, 429, 429]);
    const refused = await server.api("/api/v1/roles");
    expect(refused.headers.get("retry-after")).toBe("1");
    expect(refused.body).toMatchObject({ code: "resource_exhausted" });
    const rpc = await server.rpc("SvcService", "ListRuns");
    expect(rpc).toMatchObject({ status: 429, body: { code: "resource_exhausted" } });
    expect((await server.api("/health")).status).toBe(200);
    const other = await server.running.domain.keys.create({
      orgId: "org_default",
      environmentId: "env_default",
      name: "other",
      roleIds: ["role_admin"],
    });
    expect((await server.api("/api/v1/roles", { key: other.key })).status).toBe(200);
  });

  test("every answer is for the caller alone, in no frame, and of the type it says", async () => {
    for (const way of everyWay(server.running.registry)) {
      const { headers } = await go(server.url, way, { headers: {} });
      const name = `${way.method} ${way.path}`;
      expect(headers.get("x-content-type-options"), name).toBe("nosniff");
      expect(headers.get("x-frame-options"), name).toBe("DENY");
      expect(headers.get("referrer-policy"), name).toBe("no-referrer");
      expect(headers.get("cache-control"), name).toContain("no-store");
      expect(headers.get("access-control-allow-origin"), name).toBe("*");
    }
    const page = await fetch(`${server.url}/docs`);
    expect(page.headers.get("content-security-policy")).toContain("frame-ancestors 'none'");
    expect(page.headers.get("x-content-type-options")).toBe("nosniff");
  });

  test("a head that is too large is refused, and the server goes on", async () => {
    const huge = await server
      .api("/api/v1/roles", { headers: { "x-large": "a".repeat(200_000) } })
      .catch(() => undefined);
    expect([431, undefined]).toContain(huge?.status);
    expect((await server.api("/health")).status).toBe(200);
  });
});
