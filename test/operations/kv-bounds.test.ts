import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { dropExpired } from "../../src/domain/state/kv/change-rows.ts";
import { newestOf } from "../../src/domain/state/kv/rows.ts";
import { bucketCheck } from "../../src/domain/state/kv/service.ts";
import { type Sql, sql } from "../../src/kit/sql.ts";
import type { Session } from "../../src/store/store.ts";
import { base, expectFault, kvOf, pathOf } from "../support/kv.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

describe.each(engines)("what bounds the key-value store on %s", (engine) => {
  let server: TestServer;
  const { make, put, get, textOf, remove, environment, rowsOf, isBalanced } = kvOf(() => server);
  beforeAll(async () => {
    server = await startTestServer({ engine, settings: { auditKv: true } });
  }, 120_000);
  afterAll(() => server.stop());

  test("a key is gone when its time is over, and its row follows", async () => {
    await make("brief", { ttl_seconds: 1, history: 2 });
    await make("long", { ttl_seconds: 600, max_bytes: 10 });
    const beganAt = Date.now();
    await put(pathOf("brief", "k"), "1");
    await put(pathOf("brief", "k"), "2");
    await put(`${pathOf("brief", "kept")}?ttl_seconds=600`, "3");
    await put(`${pathOf("long", "k")}?ttl_seconds=1`, "123456");
    const { body } = await get(pathOf("brief", "k"));
    expect(Date.parse(body.expires_at) - Date.parse(body.created_at)).toBe(1_000);
    expectFault(await put(pathOf("long", "l"), "12345"), 429, {
      message: "value: bucket long holds at most 10 bytes, and has 6",
      field: "value",
    });
    expectFault(await put(`${pathOf("long", "l")}?ttl_seconds=soon`, "1"), 400, { field: "ttl_seconds" });
    await until(async () => (await textOf(pathOf("long", "k"))) === 404, { about: "the end of its time" });
    expect(Date.now() - beganAt).toBeGreaterThanOrEqual(1_000);
    expect([await textOf(pathOf("brief", "k")), await textOf(pathOf("brief", "kept"))]).toEqual([404, "3"]);
    expect(await textOf(`${pathOf("brief", "k")}?revision=1`)).toBe(404);
    expect((await get(`${base}/brief/keys`)).body.keys).toEqual(["kept"]);
    const again = await put(pathOf("brief", "again"), "1", { headers: { "if-none-match": "*" } });
    expect(again.status).toBe(200);
    // What has expired takes no room, whether its row is there or not.
    expect((await put(pathOf("long", "l"), "1234567890")).status).toBe(200);
    expect((await get(`${base}/long`)).body).toMatchObject({ values: 1, bytes: 10 });
    await until(
      async () => {
        await server.running.tick("kv.expire");
        const { values } = (await get(`${base}/brief`)).body;
        return values === 1;
      },
      { about: "the rows of expired keys" },
    );
    expect(await isBalanced()).toBe(true);
  });

  test("another environment's bucket looks like one that is not there", async () => {
    const other = await environment("kv-other");
    await make("shared");
    await put(pathOf("shared", "k"), "mine");
    const theirs = { key: other.key };
    for (const answer of [
      await get(pathOf("shared", "k"), theirs),
      await put(pathOf("shared", "k"), "x", theirs),
      await remove(pathOf("shared", "k"), theirs),
      await get(`${base}/shared`, theirs),
      await get(`${base}/shared/keys`, theirs),
      await remove(`${base}/shared`, theirs),
    ])
      expectFault(answer, 404, { message: "bucket shared not found" });
    await make("shared", {}, theirs);
    expect((await put(pathOf("shared", "k"), "theirs", theirs)).body).toEqual({ revision: 1 });
    expect((await get(base, theirs)).body.count).toBe(1);
    expect(await textOf(pathOf("shared", "k"))).toBe("mine");

    expect((await server.api(`/api/v1/environments/${other.id}`, { method: "DELETE" })).status).toBe(200);
    expect((await put(pathOf("shared", "k"), "late", theirs)).status).toBe(401);
    await until(
      async () => {
        await server.running.tick("tenancy.purge");
        const left = ["kv_buckets", "kv_keys", "kv_history"].map((table) => rowsOf(table, other.id));
        return (await Promise.all(left)).every((count) => count === 0);
      },
      { about: "the purge" },
    );
    expect(await textOf(pathOf("shared", "k"))).toBe("mine");
  });

  test("what policies deny of a bucket or of its keys is refused, and left out of lists", async () => {
    const role = (await server.api("/api/v1/roles", { body: { name: "kv-bound", base: "developer" } })).body;
    const deny = async (resource: string) => {
      const body = {
        name: resource,
        effect: "deny",
        actions: "*",
        resources: `irn:svc:*:*:kv:*:${resource}`,
      };
      const { id } = (await server.api("/api/v1/policies", { body })).body;
      await server.api(`/api/v1/roles/${role.id}/policies`, { body: { policy_id: id } });
    };
    await make("denied");
    await make("open");
    for (const bucket of ["denied", "open"])
      for (const key of ["a", "secret/a"]) await put(pathOf(bucket, key), "v");
    await deny("denied");
    await deny("open/secret*");
    const { key } = (await server.api("/api/v1/apikeys", { body: { name: "bound", role_ids: [role.id] } }))
      .body;
    for (const path of [`${base}/denied`, `${base}/denied/keys`, pathOf("denied", "a")])
      expect([path, (await get(path, { key })).status]).toEqual([path, 403]);
    expect((await put(pathOf("open", "secret/a"), "x", { key })).status).toBe(403);
    expect((await put(pathOf("open", "a"), "x", { key })).status).toBe(200);
    expect((await get(`${base}/open/keys`, { key })).body).toEqual({ keys: ["a"], count: 1 });
    const listed = (await get(base, { key })).body;
    const names = listed.buckets.map(({ name }: { name: string }) => name);
    expect([names.includes("denied"), names.includes("open"), listed.count]).toEqual([
      false,
      true,
      names.length,
    ]);
    const viewer = { name: "viewer", role_ids: ["role_viewer"] };
    const reading = { key: (await server.api("/api/v1/apikeys", { body: viewer })).body.key };
    expect((await get(pathOf("open", "a"), reading)).status).toBe(200);
    expect((await put(pathOf("open", "a"), "x", reading)).status).toBe(403);
    expect((await remove(`${base}/open`, reading)).status).toBe(403);
  });

  test("changes are audited with what they are about, never with the value", async () => {
    await make("audited", { history: 2 });
    await put(pathOf("audited", "a/b"), "not to be seen");
    await remove(`${pathOf("audited", "a/b")}?purge=true`);
    await server.running.tick("audit.flush");
    const { body } = await server.rpc("AuditService", "GetAuthAuditTrail", { action: "secrets:manage" });
    const own = body.events.filter((event: object) => JSON.stringify(event).includes("audited"));
    expect(own.map(({ event_type }: { event_type: string }) => event_type)).toEqual([
      "kv.delete",
      "kv.put",
      "kv.buckets.create",
    ]);
    expect(own[1].payload).toMatchObject({ input: { bucket: "audited" } });
    expect(JSON.stringify(own[1])).toContain("kv:env_default:audited/a/b");
    expect(JSON.stringify(own)).not.toContain("not to be seen");
    expect((await server.api("/api/v1/audit/settings")).body.kv_capture).toBe(true);
  });

  // Of a table without statistics each row had been compared with each key: 32 puts a second.
  test.skipIf(engine !== "postgres")("history is deleted key by key, also in a young table", async () => {
    await make("young", { history: 2, ttl_seconds: 60 });
    for (const value of ["1", "2", "3"]) await put(pathOf("young", "k"), value);
    const { store } = server.running.domain;
    const { id } = (await store.one<{ id: string }>(sql`SELECT id FROM kv_buckets WHERE name = 'young'`))!;
    const run: Sql[] = [];
    await store.write(async (session) => {
      await session.run(sql`INSERT INTO kv_history (environment_id, bucket_id, key, revision, bytes, created_at, value)
        SELECT ${server.env}, ${id}, 'old-' || i, i, 1, 1, 'eA==' FROM generate_series(100, 20000) i`);
      const noting: Session = {
        ...session,
        run(query) {
          run.push(query);
          return session.run(query);
        },
        all(query) {
          run.push(query);
          return session.all(query);
        },
      };
      expect(await dropExpired(noting, { environmentId: server.env, id }, Date.now() + 120_000, 10)).toBe(1);
    });
    const plans = await Promise.all(run.map((one) => store.all<Record<string, string>>(sql`EXPLAIN ${one}`)));
    const plan = plans
      .flat()
      .map((line) => line["QUERY PLAN"])
      .join("\n");
    expect(plan).toContain("Tid Scan on kv_history");
    expect(plan).toMatch(/Index Cond: .*\(key = /);
    expect(await rowsOf("kv_history")).toBeGreaterThan(19_000);
    await remove(`${base}/young`);
  });

  test.skipIf(engine !== "postgres")(
    "keys are found by their primary key, also by statistics of a small table",
    async () => {
      await make("small");
      await put(pathOf("small", "k"), "v");
      const { store } = server.running.domain;
      await store.write((session) => session.run(sql`ANALYZE kv_keys`));
      const found = newestOf(store.seams, [{ environmentId: server.env, bucket: "small", key: "k" }]);
      const lines = await store.all<Record<string, string>>(sql`EXPLAIN SELECT e.revision ${found}`);
      const plan = lines.map((line) => line["QUERY PLAN"]).join("\n");
      expect(plan).toContain("kv_keys_pkey");
      expect(plan).not.toContain("by_revision");
    },
  );

  test("a count that is not that of the rows is found", async () => {
    const env = await environment("kv-counts");
    const own = { key: env.key };
    await make("counted", {}, own);
    await put(pathOf("counted", "k"), "12", own);
    expect(await isBalanced(own)).toBe(true);
    const { store } = server.running.domain;
    const set = (column: string, value: number) =>
      store.write((session) =>
        session.run(
          sql`UPDATE kv_buckets SET ${sql.raw(column)} = ${value} WHERE environment_id = ${env.id}`,
        ),
      );
    const check = bucketCheck(store);
    for (const [column, wrong, right] of [
      ["value_count", 2, 1],
      ["bytes", 3, 2],
      ["revision", 0, 1],
    ] as const) {
      await set(column, wrong);
      expect(await check.run(env.id)).toMatchObject({ count: 1, oldest: { id: "bucket counted" } });
      await set(column, right);
      expect(await check.run(env.id)).toMatchObject({ count: 0 });
    }
    // Beyond one look, buckets take turns; what is wrong stays in sight.
    await Promise.all(Array.from({ length: 21 }, (_, at) => make(`more-${at}`, {}, own)));
    await set("bytes", 1);
    const found = [];
    for (let looks = 0; looks < 4; looks++) found.push((await check.run(env.id)).count);
    expect(found).toEqual([10, 10, 10, 10]);
    await set("bytes", 0);
    const counted = sql`UPDATE kv_buckets SET bytes = 3 WHERE environment_id = ${env.id} AND name = 'counted'`;
    await store.write((session) => session.run(counted));
    await until(async () => (await check.run(env.id)).count === 1, {
      about: "the one in its turn",
      everyMs: 1,
    });
    expect((await check.run(env.id)).count).toBe(1);
  });
});
