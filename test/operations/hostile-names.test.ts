import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { sql } from "../../src/kit/sql.ts";
import { benign, holdsVerbatim, hostile, isHeldOrLogin, type Sent, walk } from "../support/hostile-names.ts";
import { listen } from "../support/raw-stream.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { openSocket } from "../support/sockets.ts";
import { until } from "../support/until.ts";

describe.each(engines)("hostile names on %s", (engine) => {
  let server: TestServer;
  let platformKey: string;
  const sample = benign();
  const go = (texts: Readonly<Record<string, string>>, reads = false) =>
    walk({
      server,
      texts,
      reads,
      sample,
      headers: ({ path }) => {
        const isPlatform = path.startsWith("/api/v1/platform/");
        const isAcrossOrgs = /^\/api\/v1\/(orgs|tenants)/.test(path);
        return {
          authorization: `Bearer ${isPlatform || isAcrossOrgs ? platformKey : server.adminKey}`,
          ...(isAcrossOrgs && { "x-svc-org": "org_default" }),
        };
      },
      skips: isHeldOrLogin,
    });

  beforeAll(async () => {
    server = await startTestServer({ engine });
    const platform = { orgId: "org_platform", environmentId: null, isPlatform: true, name: "p" };
    const roleIds = ["role_platform_admin"];
    platformKey = (await server.running.domain.keys.create({ ...platform, roleIds })).key;
    await server.api("/api/v1/kv/buckets", { body: { name: "benign" } });
    await server.rpc("SvcService", "RegisterFunction", {
      id: "benign",
      triggers: [{ event: "benign.event" }],
    });
  }, 120_000);
  afterAll(() => server.stop());

  /** Every text in the store, with its table and column. */
  async function* texts(): AsyncGenerator<{ place: string; text: string }> {
    const { store } = server.running.domain;
    const tables = await store.all<{ name: string }>(
      engine === "postgres"
        ? sql`SELECT tablename AS name FROM pg_tables WHERE schemaname = current_schema()`
        : sql`SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%'`,
    );
    for (const { name } of tables)
      for (const row of await store.all<Record<string, unknown>>(sql`SELECT * FROM ${sql.raw(name)}`))
        for (const [column, text] of Object.entries(row))
          if (typeof text === "string") yield { place: `${name}.${column}`, text };
  }

  test("are refused, or kept as they are: in every text of every operation that changes something", async () => {
    const sent = await go(hostile);
    const about = ({ way, field, what, status, text }: Sent) =>
      `${way} ${field}: ${what}: ${status} ${text.slice(0, 200)}`;
    expect(sent.filter(({ status }) => status >= 500).map(about)).toEqual([]);
    // Who is refused is told in so many words.
    expect(sent.filter(({ status, text }) => status >= 400 && text.length > 4_096).map(about)).toEqual([]);
    const byMarker = new Map(sent.map((one) => [one.marker, one]));
    const wrong: string[] = [];
    for await (const { place, text } of texts()) {
      // A slug is made from a name and never is the name; the audit may shorten what it was told.
      if (place.endsWith(".slug") || place.startsWith("auth_audit")) continue;
      for (const [marker] of text.matchAll(/mk\d{12}/g)) {
        const one = byMarker.get(marker)!;
        const cut = place === "functions.definition" || place.includes("snapshot") ? withoutSlug(text) : text;
        if (!cut.includes(marker)) continue;
        if (one.status >= 400) wrong.push(`refused, and in ${place}: ${about(one)}`);
        else if (!holdsVerbatim(text, one.value)) wrong.push(`changed in ${place}: ${about(one)}`);
      }
    }
    expect(wrong).toEqual([]);
  }, 240_000);

  test("are looked for like any that nothing has", async () => {
    const sent = await go(hostile, true);
    expect(new Set(sent.map(({ way }) => way)).size).toBeGreaterThan(50);
    const wrong = sent.filter(({ status, text }) => status >= 500 || (status >= 400 && text.length > 4_096));
    expect(
      wrong.map(
        ({ way, field, what, status, text }) => `${way} ${field}: ${what}: ${status} ${text.slice(0, 200)}`,
      ),
    ).toEqual([]);
  }, 240_000);

  test("are refused, or listened to, on streams and sockets: nothing breaks", async () => {
    const way = { headers: { authorization: `Bearer ${server.adminKey}` } };
    const socket = await openSocket(server.url, { key: server.adminKey });
    const places: [string, (text: string) => object][] = [
      ["JoinConsumerGroup", (groupName) => ({ groupName })],
      ["JoinConsumerGroup", (namespace) => ({ namespace, groupName: "none" })],
      ["JoinConsumerGroup", (consumerId) => ({ groupName: "none", consumerId })],
      ["JoinConsumerGroup", (clientId) => ({ groupName: "none", clientId })],
      ["Subscribe", (pattern) => ({ pattern })],
      ["Subscribe", (consumerGroup) => ({ pattern: "a.b", options: { consumerGroup } })],
      ["Subscribe", (filter) => ({ pattern: "a.b", options: { filter } })],
      ["Subscribe", (text) => ({ pattern: "a.b", options: { filter: `topic == '${text}'` } })],
      ["Subscribe", (startAfterSequence) => ({ pattern: "a.b", options: { startAfterSequence } })],
    ];
    const wrong: string[] = [];
    for (const [what, text] of Object.entries(hostile))
      for (const [method, asked] of places) {
        const stream = listen(server.url, method, way, asked(`a${text}z`));
        // What is listened to goes on.
        await until(() => stream.heard.over, { about: "its end", deadlineMs: 100 }).catch(() => {});
        if (/"(internal|unknown|unavailable)"/.test(stream.heard.text))
          wrong.push(`${method} ${what}: ${stream.heard.text.slice(0, 300)}`);
        stream.cut();
        if (method !== "Subscribe") continue;
        const { pattern, options } = asked(`a${text}z`) as {
          pattern: string;
          options?: Record<string, unknown>;
        };
        const answer = await socket.subscribe(pattern, options);
        if (answer.code === "INTERNAL_ERROR")
          wrong.push(`socket ${what}: ${JSON.stringify(answer).slice(0, 300)}`);
      }
    expect(wrong).toEqual([]);
    expect(socket.closed).toBeUndefined();
    socket.close();
  }, 120_000);

  test("were tried where good ones are taken", async () => {
    const taken = new Set(
      (await go({ good: "good" }))
        .filter(({ status }) => status < 300)
        .map(({ way, field }) => `${way} ${field}`),
    );
    for (const one of [
      "POST /api/v1/apikeys name",
      "POST /api/v1/roles name",
      "POST /api/v1/policies name",
      "POST /api/v1/users name",
      "POST /api/v1/environments name",
      "POST /api/v1/projects name",
      "POST /api/v1/orgs name",
      "POST /api/v1/tenants/provision org_name",
      "POST /api/v1/secrets name",
      "POST /api/v1/secrets value",
      "POST /api/v1/kv/buckets name",
      "PUT /api/v1/kv/buckets/{bucket}/keys/{key...} key",
      "POST /api/v1/platform/users name",
      "POST /api/v1/platform/roles name",
      "POST /api/v1/platform/policies name",
      "POST /api/v1/platform/tenants name",
      "POST /svc.v1.SvcService/RegisterFunction id",
      "POST /svc.v1.SvcService/RegisterFunction name",
      "POST /svc.v1.SvcService/Emit event",
      "POST /api/v1/workers/{workerId}/register workerId",
    ])
      expect([...taken]).toContain(one);
  }, 120_000);
});

const withoutSlug = (text: string): string => text.replace(/"slug":"[^"]*"/g, "");
