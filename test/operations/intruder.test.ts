import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { Type } from "@sinclair/typebox";
import { missing } from "../../src/kit/fault.ts";
import { type Operation, unary } from "../../src/kit/operation.ts";
import { sql } from "../../src/kit/sql.ts";
import { type FurnishedOrg, furnishOrg } from "../support/furnished-org.ts";
import {
  type IntruderOptions,
  idsOf,
  intrude,
  intrudeBeside,
  reached,
  unshown,
} from "../support/intruder.ts";
import { startTestServer, type TestServer } from "../support/server.ts";

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

/** A list of things that nobody has furnished. */
const blank = unary({
  name: "test.blank",
  action: "orgs:read",
  summary: "Lists what nobody has made.",
  reads: true,
  input: Type.Object({}),
  rest: "GET /test/blank",
  handle: () => [],
});

/** Lists in which an admin of the victim finds nothing of its own, and why. */
const nothingToShow: Record<string, string> = {
  "auth.issuers": "of the default org and the platform, where no org is named",
  "audit.settings": "settings of the server",
  "breakers.list": "endpoints in trouble: nobody calls one here",
  "cluster.health": "nodes, which are no org's",
  "integrity.report": "counts",
  "overview.get": "counts",
  "usage.list": "counts by day, where they are not asked for by function",
  "overview.rates": "counts",
  "policyTemplates.list": "texts of the product",
  "projections.waitBatch": "how far the projections are that were asked for by name",
  "schemas.check": "names of events and counts; the text of a schema is read elsewhere",
  "schemas.testUpcast": "the data that was sent, where no schema says more",
  "server.capabilities": "about the server",
  "server.openapi": "about the server",
  "server.routes": "about the server",
};

/** Who wants to sign in is shown the issuers of an org: that one is there is no secret, and no credential counts. */
const isPublished = (way: string) => /^(GET|POST) \/api\/v1\/auth\/oidc\/\{id\}\/(?!link)/.test(way);

describe("an intruder from another org with the same names", () => {
  let server: TestServer;
  let victim: FurnishedOrg;
  let intruder: FurnishedOrg;
  let options: IntruderOptions;
  const operations = [
    blank,
    careless(
      async (id) =>
        (await server.running.domain.store.one(sql`SELECT id FROM roles WHERE id = ${id}`)) !== undefined,
    ),
    talkative(() => server.running.domain.store.all(sql`SELECT name FROM users`)),
  ];

  beforeAll(async () => {
    server = await startTestServer({ engine: "libsql", settings: { pollHoldMs: 1 }, operations });
    victim = await furnishOrg(server, "victim");
    intruder = await furnishOrg(server, "intruder");
    const ids = await idsOf(server, victim.orgId, victim.environmentId);
    ids.set("org", victim.orgId);
    ids.set("proj", "proj_victim");
    options = { server, visitors: intruder.visitors, ids, markers: [victim.marker] };
  }, 120_000);
  afterAll(() => server?.stop());

  test("has ids of every kind to try, and probes that reach", async () => {
    expect([...options.ids.keys()].sort()).toEqual(
      expect.arrayContaining(["ak", "env", "evt", "org", "pol", "role", "run", "usr"]),
    );
    const reads = ["events.get", "runs.get", "roles.get", "policies.get", "users.get", "keys.get"];
    const found = await reached(server, { visitor: victim.visitors.admin!, ids: options.ids, reads });
    expect(found.sort()).toEqual(reads.sort());
  }, 120_000);

  test("would be seen in every list: its own admin finds something in it (test/support/made.ts)", async () => {
    const shown = await unshown({ ...options, visitors: victim.visitors });
    expect(shown.filter((name) => nothingToShow[name] === undefined)).toEqual(["test.blank"]);
    expect(Object.keys(nothingToShow).filter((name) => !shown.includes(name))).toEqual([]);
  }, 120_000);

  test("learns nothing on any way, with any credential, and the planted mistakes are seen", async () => {
    const { intrusions } = await intrude(options);
    const planted = (way: string) => way.startsWith("GET /test/");
    expect(intrusions.filter(({ way }) => !planted(way) && !isPublished(way))).toEqual([]);
    for (const name of Object.keys(intruder.visitors)) {
      if (name === "developer" || name === "viewer") continue;
      const seen = intrusions.filter(({ visitor, way }) => visitor === name && planted(way));
      expect([...new Set(seen.map(({ way }) => way))].sort()).toEqual([
        "GET /test/careless/{id}",
        "GET /test/talkative",
      ]);
    }
    // Every credential still lets its holder in, or all this would have been about refusals.
    for (const visitor of Object.values(intruder.visitors)) {
      const { headers, query = "?" } = visitor;
      const answer = await server.api(`/api/v1/events${query}&limit=200`, { key: null, headers });
      expect(answer.status).toBe(200);
      expect(JSON.stringify(answer.body)).toContain(intruder.marker);
    }
  }, 900_000);

  test("learns nothing by one id of the victim's beside its own", async () => {
    const own = await idsOf(server, intruder.orgId, intruder.environmentId);
    const { admin, session } = intruder.visitors;
    const visitors = { admin: admin!, session: session! };
    const { intrusions, calls } = await intrudeBeside({ ...options, visitors, own });
    expect(calls).toBeGreaterThan(300);
    expect(intrusions.filter(({ way }) => !way.startsWith("GET /test/"))).toEqual([]);
  }, 900_000);

  test("gets nowhere by naming the victim's org or environment in a header", async () => {
    for (const visitor of Object.values(intruder.visitors))
      for (const [header, value, none] of [
        ["x-svc-environment", victim.environmentId, "env_00000000000000000000000000"],
        ["x-svc-org", victim.orgId, "org_none"],
      ] as const) {
        const ask = async (value: string) => {
          const headers = { ...visitor.headers, [header]: value };
          const path = `/api/v1/events${visitor.query ?? ""}`;
          const { status, body } = await server.api(path, { key: null, headers });
          return `${status} ${JSON.stringify(body)}`;
        };
        const answer = await ask(value);
        expect(answer).not.toContain(victim.marker);
        expect(answer.replaceAll(value, "SENT")).toBe((await ask(none)).replaceAll(none, "SENT"));
      }
  });
});
