import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { Type } from "@sinclair/typebox";
import { missing } from "../../src/kit/fault.ts";
import { type Operation, unary } from "../../src/kit/operation.ts";
import { sql } from "../../src/kit/sql.ts";
import { type IntruderOptions, idsOf, intrude, reached } from "../support/intruder.ts";
import { type CallOptions, startTestServer, type TestServer } from "../support/server.ts";

/** One org with the same names as every other, and a marker in all that can hold text. */
async function furnish(server: TestServer, org: string) {
  const { store, tenancy, keys } = server.running.domain;
  const orgId = `org_${org}`;
  const marker = `MARKER-OF-${org.toUpperCase()}`;
  await store.write((session) =>
    session.run(
      sql`INSERT INTO orgs (id, name, created_at, updated_at) VALUES (${orgId}, ${`same ${marker}`}, 1, 1)`,
    ),
  );
  const projectId = `proj_${org}`;
  await store.write((session) =>
    session.run(
      sql`INSERT INTO projects (id, org_id, name, created_at, updated_at) VALUES (${projectId}, ${orgId}, ${"same"}, 1, 1)`,
    ),
  );
  // Without a project it would be anybody's (spec.md 'REST: environments, projects').
  const { id: environmentId } = await tenancy.createEnvironment({ orgId, projectId, name: "same" });
  const make = (name: string, roleIds: string[]) => keys.create({ orgId, environmentId, name, roleIds });
  const { key } = await make("same", ["role_admin"]);
  const api = async (path: string, options: CallOptions = {}) => {
    const answer = await server.api(path, { key, ...options });
    expect(answer.status, `${path} ${JSON.stringify(answer.body)}`).toBeLessThan(300);
    return answer.body;
  };
  const rpc = (method: string, body: object) => api(`/svc.v1.SvcService/${method}`, { body });
  await rpc("RegisterFunction", { id: "same", name: marker, triggers: [{ event: "same.event" }] });
  await rpc("Emit", { event: "same.event", data: { marker } });
  const worker = "/api/v1/workers/same";
  await api(`${worker}/register`, { body: { function_ids: ["same"] } });
  const [job] = (await api(`${worker}/jobs?available=1`)).jobs;
  const { execution_seq, lease_token } = job;
  await api(`${worker}/jobs/${job.job_id}`, {
    method: "PUT",
    body: { execution_seq, lease_token, status: "completed", output: { marker } },
  });
  await rpc("Emit", { event: "same.event", data: { marker } });
  const role = await api("/api/v1/roles", { body: { name: "same" } });
  const policy = await api("/api/v1/policies", {
    body: { name: "same", effect: "deny", actions: "*", resources: `irn:svc:*:*:event:*:${marker}` },
  });
  await api(`/api/v1/roles/${role.id}/policies`, { body: { policy_id: policy.id } });
  await api("/api/v1/secrets", { body: { name: "same", value: `${marker}-SECRET` } });
  const email = `${org}@example.test`;
  const password = `correct horse ${org}`;
  await api("/api/v1/users", { body: { email, name: marker, password, roles: ["admin"] } });
  await server.running.tick("audit.flush");
  const session = (await api("/api/v1/auth/login", { body: { email, password }, key: null })).token;
  const desktop = (await api("/api/v1/auth/desktop-session", { method: "POST" })).token;
  const developer = await make("same", ["role_developer"]);
  const bearer = (text: string) => ({ headers: { authorization: `Bearer ${text}` } });
  return {
    orgId,
    environmentId,
    marker,
    visitors: {
      admin: bearer(key),
      developer: bearer(developer.key),
      cookie: { headers: { cookie: `svc_dashboard_token=${session}` } },
      desktop: bearer(desktop),
    },
  };
}

/** A mistake that is easily made: it looks before it asks whose it is. */
const careless = (find: (id: string) => Promise<boolean>): Operation =>
  unary({
    name: "test.careless",
    action: "orgs:read",
    summary: "Tells another org's role from none.",
    reads: true,
    input: Type.Object({ id: Type.String() }),
    rest: "GET /test/careless/{id}",
    async handle({ id }) {
      if (await find(id)) throw missing("policy", id);
      throw missing("role", id);
    },
  });
const talkative = (tell: () => Promise<object>): Operation =>
  unary({
    name: "test.talkative",
    action: "orgs:read",
    summary: "Lists everybody's.",
    reads: true,
    input: Type.Object({}),
    rest: "GET /test/talkative",
    handle: tell,
  });

describe("an intruder from another org with the same names", () => {
  let server: TestServer;
  let victim: Awaited<ReturnType<typeof furnish>>;
  let intruder: Awaited<ReturnType<typeof furnish>>;
  let options: IntruderOptions;
  const operations = [
    careless(
      async (id) =>
        (await server.running.domain.store.one(sql`SELECT id FROM roles WHERE id = ${id}`)) !== undefined,
    ),
    talkative(() => server.running.domain.store.all(sql`SELECT name FROM users`)),
  ];

  beforeAll(async () => {
    server = await startTestServer({ engine: "libsql", settings: { pollHoldMs: 1 }, operations });
    victim = await furnish(server, "victim");
    intruder = await furnish(server, "intruder");
    const ids = await idsOf(server, victim.orgId, victim.environmentId);
    ids.set("org", victim.orgId);
    ids.set("proj", "proj_victim");
    options = { server, visitors: intruder.visitors, ids, markers: [victim.marker] };
  }, 30_000);
  afterAll(() => server.stop());

  test("has ids of every kind to try, and probes that reach", async () => {
    expect([...options.ids.keys()].sort()).toEqual(
      expect.arrayContaining(["ak", "env", "evt", "org", "pol", "role", "run", "usr"]),
    );
    const found = await reached(server, victim.visitors.admin, options.ids);
    expect(found).toEqual(
      expect.arrayContaining([
        "events.get",
        "runs.get",
        "roles.get",
        "policies.get",
        "users.get",
        "keys.get",
      ]),
    );
  }, 60_000);

  test("learns nothing on any way, with any credential, and the planted mistakes are seen", async () => {
    const { intrusions } = await intrude(options);
    const planted = (way: string) => way.startsWith("GET /test/");
    expect(intrusions.filter(({ way }) => !planted(way))).toEqual([]);
    for (const name of Object.keys(intruder.visitors)) {
      if (name === "developer") continue;
      const seen = intrusions.filter(({ visitor, way }) => visitor === name && planted(way));
      expect([...new Set(seen.map(({ way }) => way))].sort()).toEqual([
        "GET /test/careless/{id}",
        "GET /test/talkative",
      ]);
    }
    // Every credential still lets its holder in, or all this would have been about refusals.
    for (const visitor of Object.values(intruder.visitors)) {
      const answer = await server.api("/api/v1/events", { key: null, headers: visitor.headers });
      expect(answer.status).toBe(200);
      expect(JSON.stringify(answer.body)).toContain(intruder.marker);
    }
  }, 120_000);

  test("gets nowhere by naming the victim's org or environment in a header", async () => {
    for (const visitor of Object.values(intruder.visitors))
      for (const [header, value, none] of [
        ["x-svc-environment", victim.environmentId, "env_00000000000000000000000000"],
        ["x-svc-org", victim.orgId, "org_none"],
      ] as const) {
        const ask = async (value: string) => {
          const headers = { ...visitor.headers, [header]: value };
          const { status, body } = await server.api("/api/v1/events", { key: null, headers });
          return `${status} ${JSON.stringify(body)}`;
        };
        const answer = await ask(value);
        expect(answer).not.toContain(victim.marker);
        expect(answer.replaceAll(value, "SENT")).toBe((await ask(none)).replaceAll(none, "SENT"));
      }
  });
});
