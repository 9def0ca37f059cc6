import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { BucketFeed } from "../../src/domain/state/kv/bucket-feed.ts";
import { watchAheadBytesMax, watchBytesAtOnce } from "../../src/domain/state/kv/limits.ts";
import { systemClock } from "../../src/kit/clock.ts";
import { silentLog } from "../../src/kit/log.ts";
import { sql } from "../../src/kit/sql.ts";
import { go } from "../support/every-route.ts";
import { base, expectFault, kvOf, pathOf } from "../support/kv.ts";
import { openRawSocket } from "../support/raw-socket.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { bearerProtocol, openSocket, type TestSocket } from "../support/sockets.ts";
import { until } from "../support/until.ts";

describe.each(engines)("watches of keys on %s", (engine) => {
  let server: TestServer;
  const { make, put, get, watch, remove, environment } = kvOf(() => server);
  beforeAll(async () => {
    server = await startTestServer({ engine });
  }, 120_000);
  afterAll(() => server.stop());

  const told = (socket: TestSocket) =>
    socket.frames.map(({ revision, operation, key, value }) =>
      [revision, operation, key, Buffer.from(value, "base64").toString()].join(" "),
    );
  const hears = (socket: TestSocket, count: number) => socket.wait("kv_update", count);
  /** The answer to an upgrade. */
  const asks = (path: string, headers: Record<string, string> = {}) => {
    const operation = server.running.registry.find(({ name }) => name === "kv.watch")!;
    const visitor = { headers: { authorization: `Bearer ${server.adminKey}`, ...headers } };
    return go(server.url, { operation, protocol: "socket", method: "GET", path }, visitor);
  };

  test("tell the values that there are, then each change in its order", async () => {
    await make("first", { history: 5 });
    await put(pathOf("first", "a"), "1");
    await put(pathOf("first", "b/c"), "2");
    await put(pathOf("first", "a"), "3");
    await put(pathOf("first", "gone"), "4");
    await remove(pathOf("first", "gone"));
    const socket = await watch("first");
    await hears(socket, 2);
    expect(socket.frames[0]).toEqual({
      type: "kv_update",
      key: "b/c",
      value: Buffer.from("2").toString("base64"),
      revision: 2,
      operation: "put",
      bucket: "first",
    });
    await put(pathOf("first", "new"), "");
    await remove(pathOf("first", "a"));
    await Promise.all(Array.from({ length: 20 }, (_, at) => put(pathOf("first", `k${at}`), `${at}`)));
    await hears(socket, 24);
    expect(told(socket).slice(0, 4)).toEqual(["2 put b/c 2", "3 put a 3", "6 put new ", "7 delete a "]);
    expect(socket.frames.slice(2).map(({ revision }) => revision)).toEqual(
      Array.from({ length: 22 }, (_, at) => 6 + at),
    );
    socket.sendText("what a client says is passed over");
    await put(pathOf("first", "last"), "x");
    expect((await hears(socket, 25)).at(-1).key).toBe("last");
    socket.close();
  });

  test("of a key or a pattern tell that alone", async () => {
    await make("some");
    const keys = ["a.b", "a.c", "a/b", "user-1"];
    for (const key of keys) await put(pathOf("some", key), key);
    const asked: [string, string[]][] = [
      ["?key=a.b", ["a.b"]],
      ["?key=a%2Fb", ["a/b"]],
      ["?key=a.*", ["a.b", "a.c"]],
      ["?key=user-*", ["user-1"]],
      ["?key=%3E", keys],
      ["?key=none", []],
    ];
    const sockets = await Promise.all(asked.map(([query]) => watch("some", query)));
    await Promise.all(sockets.map((socket, at) => hears(socket, asked[at]![1].length)));
    for (const key of [...keys, "none", "other"]) await put(pathOf("some", key), "again");
    const last = (await put(pathOf("some", "a.b"), "end")).body.revision;
    // A value that was replaced before it was read is left out, so that frames cannot be counted.
    for (const socket of [sockets[0]!, sockets[4]!])
      await until(() => socket.frames.at(-1)?.revision === last, { about: "the last change" });
    for (const [at, [query, own]] of asked.entries()) {
      const wanted = query === "?key=none" ? ["none"] : own;
      const seen = new Set(sockets[at]!.frames.map(({ key }) => key));
      expect([
        query,
        [...seen].filter((key) => !["none", "other"].includes(key) || query !== "?key=%3E"),
      ]).toEqual([query, wanted]);
      sockets[at]!.close();
    }
  });

  test("go on behind a revision with what is kept, and are refused where deletions are forgotten", async () => {
    await make("resumed", { history: 3 });
    for (const text of ["1", "2", "3", "4", "5"]) await put(pathOf("resumed", "k"), text);
    await put(pathOf("resumed", "l"), "6");
    await remove(pathOf("resumed", "l"));
    const after = async (revision: number, count: number) => {
      const socket = await watch("resumed", `?after=${revision}`);
      await hears(socket, count);
      socket.close();
      return told(socket);
    };
    // Of the values of `k`, three are kept.
    expect(await after(0, 5)).toEqual(["3 put k 3", "4 put k 4", "5 put k 5", "6 put l 6", "7 delete l "]);
    expect(await after(5, 2)).toEqual(["6 put l 6", "7 delete l "]);
    expect(await after(7, 0)).toEqual([]);
    expect(await ended("?after=8")).toEqual({
      code: "failed_precondition",
      message: "after: the last revision is 7",
    });
    const { status, text } = await asks(`${base}/resumed/watch?after=x`);
    expectFault({ status, body: JSON.parse(text) }, 400, { field: "after" });
    const { store } = server.running.domain;
    await store.write((session) =>
      session.run(sql`UPDATE kv_keys SET expires_at = 1 WHERE key = 'l' AND operation = 'delete'`),
    );
    await server.running.tick("kv.expire");
    expect(await ended("?after=6")).toMatchObject({ code: "failed_precondition" });
    expect(await after(7, 0)).toEqual([]);

    async function ended(query: string) {
      const socket = await watch("resumed", query);
      expect((await socket.whenClosed()).code).toBe(1008);
      const [{ type, ...frame }] = socket.frames;
      expect([type, socket.frames.length]).toEqual(["error", 1]);
      return frame;
    }
  });

  test("are refused by a status, and end with what they watch", async () => {
    await make("ended");
    const plain = await fetch(`${server.url}${base}/ended/watch`, {
      headers: { authorization: `Bearer ${server.adminKey}` },
    });
    expect(plain.status).toBe(426);
    const statusOf = async (path: string, headers: Record<string, string> = {}) =>
      (await asks(path, headers)).status;
    expect(await statusOf(`${base}/none/watch`)).toBe(404);
    expect(await statusOf(`${base}/ended/watch?key=a.>.b`)).toBe(400);
    expect(await statusOf(`${base}/ended/watch?key=${"x".repeat(2_000)}`)).toBe(400);
    expect(await statusOf(`${base}/ended/watch?key=%00`)).toBe(400);
    expect(await statusOf(`${base}/ended/watch`, { authorization: "Bearer ifkey_no" })).toBe(401);
    expect(await statusOf(`${base}/ended/watch`, { "sec-websocket-protocol": "other" })).toBe(400);
    expect(await statusOf(`${base}/ended/watch`)).toBe(101);
    const theirs = await environment("watch-other");
    expect(await statusOf(`${base}/ended/watch`, { authorization: `Bearer ${theirs.key}` })).toBe(404);
    const browser = await openSocket(server.url, {
      at: { path: `${base}/ended/watch`, frames: {} },
      protocols: ["svc.v1", bearerProtocol(server.adminKey)],
    });
    expect(browser.raw.protocol).toBe("svc.v1");
    browser.close();

    const socket = await watch("ended");
    expect((await remove(`${base}/ended`)).status).toBe(204);
    expect(await socket.whenClosed()).toEqual({ code: 1008, reason: "bucket ended not found" });
    expect(socket.frames).toEqual([{ type: "error", message: "bucket ended not found", code: "not_found" }]);
  });

  test("of a key that is revoked end, and what policies deny is not told", async () => {
    await make("guarded");
    await make("closed");
    const role = (await server.api("/api/v1/roles", { body: { name: "watcher", base: "developer" } })).body;
    const made = (await server.api("/api/v1/apikeys", { body: { name: "watcher", role_ids: [role.id] } }))
      .body;
    const as = { key: made.key as string };
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
    await deny("closed");
    await deny("guarded/secret*");
    await put(pathOf("guarded", "secret/a"), "1");
    await put(pathOf("guarded", "open"), "2");
    const authorization = `Bearer ${as.key}`;
    expect((await asks(`${base}/closed/watch`, { authorization })).status).toBe(403);
    expect((await asks(`${base}/guarded/watch?key=secret%2Fa`, { authorization })).status).toBe(403);
    const socket = await watch("guarded", "", as);
    await put(pathOf("guarded", "secret/b"), "3");
    await put(pathOf("guarded", "later"), "4");
    await hears(socket, 2);
    expect(told(socket)).toEqual(["2 put open 2", "4 put later 4"]);
    // What is denied from now on is not told from now on.
    await deny("guarded/later*");
    await server.running.tick("edge.standing");
    await until(async () => (await get(pathOf("guarded", "later"), as)).status === 403, {
      about: "the policy",
    });
    await server.running.tick("edge.standing");
    await put(pathOf("guarded", "later"), "5");
    await put(pathOf("guarded", "open"), "6");
    await hears(socket, 3);
    expect(told(socket).at(-1)).toBe("6 put open 6");
    const gone = await watch("guarded", "?key=none", as);
    await server.api(`/api/v1/apikeys/${made.id}`, { method: "DELETE" });
    expect((await socket.whenClosed()).code).toBe(1008);
    expect((await gone.whenClosed()).code).toBe(1008);
  });

  test("a reader who joins while a feed reads is not taken for one who has what was handed on", async () => {
    const { id } = (await make("joined", { history: 5 }).then(() =>
      server.running.domain.store.one<{ id: string }>(sql`SELECT id FROM kv_buckets WHERE name = 'joined'`),
    )) as { id: string };
    // Each is read alone.
    for (let at = 0; at < 3; at++) await put(pathOf("joined", `k${at}`), new Uint8Array(watchBytesAtOnce));
    const { store } = server.running.domain;
    const gate = Promise.withResolvers<void>();
    let reads = 0;
    const slow = new Proxy(store, {
      get(target, name) {
        if (name !== "all") return Reflect.get(target, name);
        return async (query: Parameters<typeof store.all>[0]) => {
          // The third is of the second value.
          if (++reads === 3) await gate.promise;
          return target.all(query);
        };
      },
    });
    const bucket = { environmentId: server.env, id, name: "joined" };
    const feed = new BucketFeed({ store: slow, clock: systemClock(), log: silentLog }, bucket, 0);
    const first = feed.tap(0, () => true);
    feed.wake();
    await until(() => reads === 3, { about: "the second value to be asked for" });
    // Who has read up to 0 must read on in the store first.
    expect(feed.at).toBe(1);
    const second = feed.tap(feed.at, () => true);
    gate.resolve();
    await until(() => feed.at === 3, { about: "the feed" });
    const taken = [await first.take(), await second.take()];
    expect(taken.map((changes) => changes.map(({ revision }) => revision))).toEqual([[1], [2]]);
  });

  test("that are read slowly wait for their reader, and are told what the bucket has kept", async () => {
    await make("slow", { max_value_size: 1024 * 1024 });
    const socket = await openRawSocket(server.url, `${base}/slow/watch`, server.adminKey);
    const value = new Uint8Array(watchAheadBytesMax / 2);
    // More than the connection, the socket and the watch together let wait.
    const puts = 40;
    for (let at = 0; at < puts; at++) await put(pathOf("slow", `k${at % 4}`), value);
    await put(pathOf("slow", "end"), "x");
    socket.resume();
    await until(() => socket.text().includes('"key":"end"'), { about: "the last change" });
    const revisions = [...socket.text().matchAll(/"revision":(\d+)/g)].map(([, text]) => Number(text));
    expect(revisions).toEqual(revisions.toSorted((one, other) => one - other));
    expect(new Set(revisions).size).toBe(revisions.length);
    // The newest of each key is among them.
    expect(revisions).toEqual(expect.arrayContaining([38, 39, 40, 37, 41]));
    expect(revisions.length).toBeLessThan(puts);
    socket.close();
  }, 120_000);
});
