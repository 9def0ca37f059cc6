import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { keysPageMax } from "../../src/domain/state/kv/limits.ts";
import { sql } from "../../src/kit/sql.ts";
import { base, expectFault, kvOf, pathOf } from "../support/kv.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

describe.each(engines)("buckets and keys on %s", (engine) => {
  let server: TestServer;
  const { make, put, get, textOf, remove, rowsOf, isBalanced, environment } = kvOf(() => server);
  beforeAll(async () => {
    server = await startTestServer({ engine });
  }, 120_000);
  afterAll(() => server.stop());

  test("a bucket is made once, listed, and deleted with all that is in it", async () => {
    const made = await make("life", { description: "of things", history: 2 });
    expect(made).toEqual({
      name: "life",
      description: "of things",
      max_value_size: 1024 * 1024,
      history: 2,
      values: 0,
      bytes: 0,
      created_at: expect.stringMatching(/^\d{4}-.*Z$/),
    });
    expectFault(await server.api(base, { body: { name: "life" } }), 409, { field: "name" });
    await put(pathOf("life", "a"), "12345");
    await put(pathOf("life", "a"), "123");
    await put(pathOf("life", "b"), "");
    expect((await get(`${base}/life`)).body).toMatchObject({ values: 2, bytes: 3 });
    const { body } = await get(base);
    expect(body.count).toBe(body.buckets.length);
    expect(body.buckets).toContainEqual({ ...made, values: 2, bytes: 3 });

    expect((await remove(`${base}/life`)).status).toBe(204);
    expectFault(await remove(`${base}/life`), 404, { message: "bucket life not found" });
    expectFault(await get(pathOf("life", "a")), 404, { message: "bucket life not found" });
    expectFault(await put(pathOf("life", "a"), "x"), 404, { message: "bucket life not found" });
    expectFault(await get(`${base}/life/keys`), 404, { message: "bucket life not found" });
    // The next one of that name begins empty, while what the old one held is still being deleted.
    await make("life");
    expect((await get(`${base}/life/keys`)).body).toEqual({ keys: [], count: 0 });
    expect(await textOf(pathOf("life", "a"))).toBe(404);
    await until(
      async () => {
        await server.running.tick("kv.expire");
        return (await rowsOf("kv_keys")) + (await rowsOf("kv_history")) === 0;
      },
      { about: "the rows of the deleted bucket" },
    );
    expect((await get(`${base}/life`)).status).toBe(200);
  });

  test("a value comes back byte for byte, and every change has the next revision", async () => {
    await make("values", { max_value_size: 3_000_000 });
    const large = crypto.getRandomValues(new Uint8Array(60_000));
    const contents = [Buffer.from('{"a":1}'), Buffer.from([0, 255, 128, 10]), Buffer.alloc(0), large];
    for (const [at, bytes] of contents.entries()) {
      const type = at === 0 ? "application/json" : "application/octet-stream";
      const answer = await put(pathOf("values", "k"), bytes, { headers: { "content-type": type } });
      expect([answer.status, answer.body, answer.headers.get("etag")]).toEqual([
        200,
        { revision: at + 1 },
        `"${at + 1}"`,
      ]);
      const { body, headers } = await get(pathOf("values", "k"), {
        headers: { "content-type": "application/json" },
      });
      expect(body).toEqual({
        key: "k",
        value: Buffer.from(bytes).toString("base64"),
        revision: at + 1,
        created_at: expect.stringMatching(/^\d{4}-.*Z$/),
        operation: "put",
      });
      expect(headers.get("etag")).toBe(`"${at + 1}"`);
    }
    const most = await put(pathOf("values", "l"), new Uint8Array(3_000_000));
    expect(most.body).toEqual({ revision: 5 });
    const more = await put(pathOf("values", "l"), new Uint8Array(3_000_001));
    expectFault(more, 413, { message: "value: at most 3000000 bytes in bucket values", field: "value" });
    const tooMuch = await put(pathOf("values", "l"), new Uint8Array(4 * 1024 * 1024 + 1));
    expect(tooMuch.status).toBe(413);
    expect((await get(`${base}/values`)).body).toMatchObject({ values: 2, bytes: 3_060_000 });
    expect(await isBalanced()).toBe(true);
  });

  test("a key keeps its slashes, its dots and its percents, encoded or not", async () => {
    await make("names");
    await put(`${base}/names/keys/a/b.c:d-e_f`, "1");
    expect(await textOf(`${base}/names/keys/a%2Fb.c:d-e_f`)).toBe("1");
    await put(`${base}/names/keys/${encodeURIComponent(encodeURIComponent("cmd/1"))}`, "2");
    expect(await textOf(pathOf("names", "cmd%2F1"))).toBe("2");
    const odd = ["é *>", "__proto__", "a//b", "x".repeat(512)];
    for (const key of odd) expect((await put(pathOf("names", key), key)).status).toBe(200);
    for (const key of odd) expect(await textOf(pathOf("names", key))).toBe(key);
    const { body } = await get(`${base}/names/keys`);
    expect(new Set(body.keys)).toEqual(new Set(["a/b.c:d-e_f", "cmd%2F1", ...odd]));
    for (const [key, rule] of [
      ["a\0", "must not contain control characters"],
      ["x".repeat(513), "at most 512 bytes"],
      ["x".repeat(10_000), "at most 512 bytes"],
      ["../a", "must not have . or .. between slashes"],
    ] as const)
      for (const answer of [
        await put(pathOf("names", key), "x"),
        await get(pathOf("names", key)),
        await remove(pathOf("names", key)),
      ])
        expectFault(answer, 400, { message: `key: ${rule}`, field: "key" });
    expectFault(await put(`${base}/names/keys/%`, "x"), 400, { field: "key" });
    expectFault(await put(`${base}/names/keys/a?ttl_seconds=-1`, "x"), 400, {
      message: "ttl_seconds: must be at least 0",
    });
    // What clients make of `…/keys/..` before they send it.
    const cut = await remove(`${base}/names/`);
    expectFault(cut, 404, { message: `no such route: DELETE ${base}/names/` });
    expect(await textOf(pathOf("names", "cmd%2F1"))).toBe("2");
  });

  test("what is wrong with a bucket is named, and nothing is made", async () => {
    const cases: [object, string, string][] = [
      [{ name: "" }, "name", "must be 1 to 64 characters"],
      [{ name: "a.b" }, "name", "must be 1 to 64 characters"],
      [{ name: "SYS_config_a" }, "name", "must not begin with SYS_"],
      [{}, "name", "required"],
      [{ name: "x", history: 65 }, "history", "64"],
      [{ name: "x", history: -1 }, "history", "0"],
      [{ name: "x", ttl_seconds: 1.5 }, "ttl_seconds", "integer"],
      [{ name: "x", max_value_size: 8 * 1024 * 1024 }, "max_value_size", "at most 4194304 bytes"],
      [{ name: "x", description: "a\0" }, "description", "zero bytes"],
      [{ name: "x", ttl: 5 }, "ttl", "unknown"],
    ];
    for (const [body, field, rule] of cases) {
      const answer = await server.api(base, { body });
      expectFault(answer, 400, { code: "invalid_argument", field });
      expect(answer.body.message).toContain(rule);
    }
    expect((await get(`${base}/x`)).status).toBe(404);
    // Clients send 0 for what they leave open.
    const zeros = { ttl_seconds: 0, max_value_size: 0, max_bytes: 0, history: 0, description: "" };
    expect(await make("zeros", zeros)).toEqual(expect.objectContaining({ max_value_size: 1024 * 1024 }));
  });

  test("create-only and compare-and-set say the revision that was found", async () => {
    await make("cas");
    const path = pathOf("cas", "k");
    const absent = { headers: { "if-none-match": "*" } };
    const at = (revision: unknown) => ({ headers: { "if-match": `${revision}` } });
    expectFault(await put(path, "0", at(1)), 412, { message: "key k does not exist", field: "If-Match" });
    expect((await put(path, "1", absent)).body).toEqual({ revision: 1 });
    expectFault(await put(path, "2", absent), 412, {
      code: "precondition_failed",
      message: "key k exists at revision 1",
    });
    expect((await put(path, "2", at('"1"'))).body).toEqual({ revision: 2 });
    expectFault(await put(path, "3", at(1)), 412, {
      message: "key k is at revision 2, not at revision 1",
    });
    expectFault(await remove(path, at(1)), 412, { field: "If-Match" });
    expectFault(await put(path, "3", at("two")), 400, { field: "If-Match" });
    expectFault(await put(path, "3", { headers: { "if-none-match": "2" } }), 400, { field: "If-None-Match" });
    expect(await textOf(path)).toBe("2");
    expect((await remove(path, at(2))).status).toBe(204);
    // A deleted key is free again; the revision goes on.
    expect((await put(path, "4", absent)).body).toEqual({ revision: 4 });
  });

  test("of many who raise one counter by compare-and-set, each raise counts once", async () => {
    await make("counters");
    const path = pathOf("counters", "n");
    await put(path, "0");
    let refused = 0;
    const raise = async () => {
      for (;;) {
        const { body } = await get(path);
        const next = Number(Buffer.from(body.value, "base64").toString()) + 1;
        const { status } = await put(path, `${next}`, { headers: { "if-match": `${body.revision}` } });
        if (status === 200) return;
        expect(status).toBe(412);
        refused++;
      }
    };
    await Promise.all(Array.from({ length: 16 }, async () => Promise.all([raise(), raise(), raise()])));
    expect(await textOf(path)).toBe("48");
    expect((await get(path)).body.revision).toBe(49);
    expect(refused).toBeGreaterThan(0);
    const claims = Array.from({ length: 20 }, () =>
      put(pathOf("counters", "claim"), "me", { headers: { "if-none-match": "*" } }),
    );
    const won = (await Promise.all(claims)).filter(({ status }) => status === 200);
    expect(won).toHaveLength(1);
  });

  test("a command is done once: claimed, its result kept, or given up and claimed again", async () => {
    const bucket = { name: "commands", ttl_seconds: 604_800 };
    expect((await server.api(base, { body: bucket })).status).toBe(201);
    expect((await server.api(base, { body: bucket })).status).toBe(409);
    // Clients encode the command's id, and some of them the key besides.
    const path = pathOf("commands", encodeURIComponent("order/7:pay"));
    const claim = () => put(path, '{"status":"pending"}', { headers: { "if-none-match": "*" } });
    expect((await claim()).status).toBe(200);
    expect((await claim()).status).toBe(412);
    expect((await remove(path)).status).toBe(204);
    expect(await textOf(path)).toBe(404);
    expect((await claim()).status).toBe(200);
    expect((await put(path, '{"status":"done"}')).status).toBe(200);
    expect((await claim()).status).toBe(412);
    expect(await textOf(path)).toBe('{"status":"done"}');
  });

  test("a bucket keeps as many values of a key as it says, and purge leaves none", async () => {
    await make("past", { history: 3 });
    const path = pathOf("past", "k");
    for (const text of ["1", "2", "3", "4"]) await put(path, text);
    const kept = async (...revisions: number[]) => {
      const found = [];
      for (const revision of revisions) found.push(await textOf(`${path}?revision=${revision}`));
      return found;
    };
    expect(await kept(1, 2, 3, 4, 5)).toEqual([404, "2", "3", "4", 404]);
    expectFault(await get(`${path}?revision=1`), 404, { message: "revision 1 of key k not found" });
    expectFault(await get(`${path}?revision=one`), 400, { field: "revision" });
    expect((await remove(path)).status).toBe(204);
    expect([await textOf(path), ...(await kept(2, 3, 4))]).toEqual([404, 404, "3", "4"]);
    expect((await get(`${base}/past`)).body).toMatchObject({ values: 0, bytes: 0 });
    expectFault(await remove(`${path}?purge=maybe`), 400, { field: "purge" });
    expect((await remove(`${path}?purge=true`)).status).toBe(204);
    expect(await kept(3, 4)).toEqual([404, 404]);
    // What is not there is deleted already, and takes no revision.
    expect((await remove(pathOf("past", "none"))).status).toBe(204);
    expect((await put(path, "6")).body).toEqual({ revision: 6 });
  });

  test("keys are listed by filter and prefix, in order, page by page", async () => {
    await make("lists");
    const keys = ["a", "a.b", "a.b.c", "é.b", "user-1", "user-2.name", "user:1", "z/1", "z/2.x"];
    await Promise.all(keys.map((key) => put(pathOf("lists", key), "v")));
    await put(pathOf("lists", "gone"), "v");
    await remove(pathOf("lists", "gone"));
    const list = async (query: string) => (await get(`${base}/lists/keys?${query}`)).body;
    const byBytes = keys.toSorted((one, other) => Buffer.compare(Buffer.from(one), Buffer.from(other)));
    expect(await list("")).toEqual({ keys: byBytes, count: keys.length });
    expect((await list("filter=a.>")).keys).toEqual(["a.b", "a.b.c"]);
    expect((await list("filter=*.b")).keys).toEqual(["a.b", "é.b"]);
    expect((await list("filter=user-*")).keys).toEqual(["user-1"]);
    expect((await list("filter=user:*")).keys).toEqual(["user:1"]);
    expect((await list("prefix=z/")).keys).toEqual(["z/1", "z/2.x"]);
    expect((await list("prefix=z/&filter=*.*")).keys).toEqual(["z/2.x"]);
    expect(await list("filter=none")).toEqual({ keys: [], count: 0 });
    for (const filter of ["", "filter=*", "prefix=user"]) {
      const paged: string[] = [];
      let cursor = "";
      do {
        const body = await list(`${filter}&limit=2&cursor=${cursor}`);
        expect(body.keys.length).toBeLessThanOrEqual(2);
        paged.push(...body.keys);
        cursor = body.next_cursor ?? "";
      } while (cursor !== "");
      expect(paged).toEqual((await list(filter)).keys);
    }
    expectFault(await get(`${base}/lists/keys?cursor=!`), 400, { field: "cursor" });
    expectFault(await get(`${base}/lists/keys?filter=a.>.b`), 400, { field: "filter" });
    expectFault(await get(`${base}/lists/keys?limit=ten`), 400, { field: "limit" });
  });

  test("the revisions of a key that are kept are listed, newest first, without values", async () => {
    await make("revised", { history: 3 });
    const of = (key: string) => `${base}/revised/revisions/${encodeURIComponent(key)}`;
    for (const value of ["one", "two", "", "four"]) await put(pathOf("revised", "a/b"), value);
    await put(pathOf("revised", "other"), "x");
    const list = async (key = "a/b") =>
      (await get(of(key))).body.revisions.map(
        (one: { revision: number; operation: string; bytes: number }) => [
          one.revision,
          one.operation,
          one.bytes,
        ],
      );
    expect(await list()).toEqual([
      [4, "put", 4],
      [3, "put", 0],
      [2, "put", 3],
    ]);
    expect(JSON.stringify((await get(of("a/b"))).body)).not.toContain("value");
    await remove(pathOf("revised", "a/b"));
    expect((await list())[0]).toEqual([6, "delete", 0]);
    for (const [revision, operation] of await list())
      if (operation === "put")
        expect(await textOf(`${pathOf("revised", "a/b")}?revision=${revision}`)).toBeString();
    expectFault(await get(of("none")), 404, { message: "key none not found" });
    expectFault(await get(`${base}/none/revisions/a`), 404, { message: "bucket none not found" });
    const { key } = await environment(`revised-${engine}`);
    expectFault(await get(of("a/b"), { key }), 404, { message: "bucket revised not found" });
    await remove(`${pathOf("revised", "a/b")}?purge=true`);
    expect((await list()).filter(([, operation]: [number, string]) => operation === "put")).toEqual([]);
  });

  test("more keys than one answer has come on the next page", async () => {
    await make("many");
    const { store } = server.running.domain;
    const { id } = (await store.one<{ id: string }>(
      sql`SELECT id FROM kv_buckets WHERE name = 'many' AND environment_id = ${server.env}`,
    ))!;
    const count = keysPageMax + 2_500;
    const numbers =
      engine === "postgres"
        ? sql`SELECT n FROM generate_series(1, ${sql.bigint(count)}) n`
        : sql`WITH RECURSIVE up(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM up WHERE n < ${count}) SELECT n FROM up`;
    await store.write(async (session) => {
      await session.run(sql`INSERT INTO kv_keys (environment_id, bucket_id, key, revision, operation, bytes, created_at, value)
        SELECT ${server.env}, ${id}, 'key.' || n, n, 'put', 0, 1, '' FROM (${numbers}) numbers`);
      await session.run(
        sql`UPDATE kv_buckets SET revision = ${count}, value_count = ${count} WHERE id = ${id}`,
      );
    });
    const first = (await get(`${base}/many/keys`)).body;
    expect([first.count, first.keys.length]).toEqual([keysPageMax, keysPageMax]);
    const rest = (await get(`${base}/many/keys?cursor=${first.next_cursor}`)).body;
    expect(rest).toEqual({ keys: expect.any(Array), count: 2_500 });
    expect(new Set([...first.keys, ...rest.keys]).size).toBe(count);
    // A filter that matches little is answered, however many keys it is compared with.
    expect((await get(`${base}/many/keys?filter=*.77`)).body.keys).toEqual(["key.77"]);
    expect((await remove(`${base}/many`)).status).toBe(204);
    await until(
      async () => {
        await server.running.tick("kv.expire");
        return (await store.all(sql`SELECT id FROM kv_buckets WHERE id = ${id}`)).length === 0;
      },
      { about: "the deleted bucket" },
    );
  });

  test("puts leave no row in the audit unless the setting says so; buckets and refusals do", async () => {
    await make("unseen");
    await put(pathOf("unseen", "k"), "v");
    await remove(pathOf("unseen", "k"));
    const { key } = (
      await server.api("/api/v1/apikeys", { body: { name: "looks", role_ids: ["role_viewer"] } })
    ).body;
    expect((await put(pathOf("unseen", "k"), "v", { key })).status).toBe(403);
    await server.running.tick("audit.flush");
    const { body } = await server.rpc("AuditService", "GetAuthAuditTrail", { action: "secrets:manage" });
    const told = body.events.map((row: { event_type: string; payload: { operation: string } }) => [
      row.event_type,
      row.payload.operation,
    ]);
    expect(told.slice(0, 2)).toEqual([
      ["authz.denied", "kv.put"],
      ["authz.allowed", "kv.buckets.create"],
    ]);
  });
});
