import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { Type } from "@sinclair/typebox";
import { unary } from "../../src/kit/operation.ts";
import { askAt, asWhole, undecided, waysThatName } from "../support/policy-doors.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";

describe.each(engines)("how deny policies bind each operation, on %s", (engine) => {
  let server: TestServer;
  beforeAll(async () => {
    server = await startTestServer({ engine, settings: { pollHoldMs: 1 } });
  });
  afterAll(() => server?.stop());

  test("is decided for every operation: it names what it is about (`about`), `lists`, or stands in `asWhole`", () => {
    const { registry } = server.running;
    expect(undecided(registry)).toEqual([]);
    const all = new Set(registry.map(({ name }) => name));
    expect(Object.keys(asWhole).filter((name) => !all.has(name))).toEqual([]);
  });

  test("whatever names an environment by its id is asked about in that environment", () => {
    const named = server.running.registry.filter((operation) => {
      const fields = Object.keys((operation.input as { properties?: object }).properties ?? {});
      const isItself = /^environments\./.test(operation.name) && fields.includes("id");
      return isItself || fields.some((field) => /^env(ironment)?_?id$/i.test(field));
    });
    expect(named.length).toBeGreaterThan(4);
    expect(named.filter(({ environmentOf }) => !environmentOf).map(({ name }) => name)).toEqual([]);
  });

  test("an operation that nobody has decided for is found", () => {
    const made = (name: string, input = Type.Object({})) =>
      unary({ name, action: "runs:read", reads: true, summary: "", input, handle: () => ({}) });
    expect(undecided([made("things.list"), made("things.all")])).toEqual(["things.list", "things.all"]);
    expect(undecided([made("things.get", Type.Object({ id: Type.String() }))])).toEqual([]);
  });

  test("a thing that is denied is denied at every way in that names it, and to nobody else", async () => {
    const { keys } = server.running.domain;
    const keyOf = async (isPlatform: boolean, roleId: string) =>
      (
        await keys.create({
          orgId: isPlatform ? "org_platform" : "org_default",
          environmentId: isPlatform ? null : "env_default",
          name: roleId,
          roleIds: [roleId],
          isPlatform,
        })
      ).key;
    const role = await server.api("/api/v1/roles", { body: { name: "bound", base: "admin" } });
    const tenant = { authorization: `Bearer ${await keyOf(false, role.body.id)}` };
    const platformKey = await keyOf(true, "role_platform_admin");
    const platform = { authorization: `Bearer ${platformKey}` };
    const ways = waysThatName(server.running.registry).filter(
      // A tenant's admin passes no gate of the platform's.
      ({ operation }) => operation.name !== "tenants.provision",
    );
    const headersOf = ({ operation: { action } }: (typeof ways)[number]) =>
      action?.startsWith("platform:") ? platform : tenant;
    const seen = new Map<string, { status: number; text: string }>();
    const nameOf = ({ operation, method, path }: (typeof ways)[number]) =>
      `${operation.name} ${method} ${path}`;
    for (const way of ways) seen.set(nameOf(way), await askAt(server.url, way, headersOf(way)));
    const early = [...seen].filter(([, { status }]) => status === 403 || status === 401);
    expect(early).toEqual([]);

    const body = {
      name: "the thing",
      effect: "deny",
      actions: "*",
      resources: "irn:svc:*:*:*:*:*doorthing*",
    };
    const policy = await server.api("/api/v1/policies", { body });
    await server.api(`/api/v1/roles/${role.body.id}/policies`, { body: { policy_id: policy.body.id } });
    const own = await server.api("/api/v1/platform/policies", { key: platformKey, body });
    const assigned = await server.api("/api/v1/platform/roles/role_platform_admin/policies", {
      key: platformKey,
      body: { policy_id: own.body.id },
    });
    expect(assigned.status).toBeLessThan(300);
    const open: string[] = [];
    for (const way of ways) {
      const { status, text } = await askAt(server.url, way, headersOf(way));
      if (status !== 403)
        open.push(
          `${nameOf(way)}: ${status} ${text.slice(0, 120)} (before: ${seen.get(nameOf(way))?.status})`,
        );
    }
    expect(open).toEqual([]);
    expect(ways.length).toBeGreaterThan(90);
  }, 120_000);
});
