import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { createClient, type KvChange, type SvcError } from "../../src/sdk/index.ts";
import { openNodeSocket } from "../../src/sdk/subscriptions/node-socket.ts";
import { openProxy } from "../support/proxy.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { bearerProtocol } from "../support/sockets.ts";
import { until } from "../support/until.ts";

const failure = (work: Promise<unknown>): Promise<SvcError> =>
  work.then(
    () => Promise.reject(new Error("did not fail")),
    (error: SvcError) => error,
  );

/** Reads on beside the test. */
function reading<One>(values: AsyncIterable<One>) {
  const seen: One[] = [];
  const state: { error?: unknown; isOver: boolean } = { isOver: false };
  void (async () => {
    try {
      for await (const one of values) seen.push(one);
    } catch (error) {
      state.error = error;
    }
    state.isOver = true;
  })();
  const hears = (count: number) => until(() => seen.length >= count, { about: `${count} changes` });
  return { seen, state, hears };
}

describe.each(engines)("client.kv and client.config on %s", (engine) => {
  let server: TestServer;
  beforeAll(async () => {
    server = await startTestServer({ engine });
  }, 120_000);
  afterAll(() => server.stop());
  const client = (apiKey = server.adminKey) => createClient({ url: server.url, apiKey });
  const shown = ({ revision, operation, key, text }: KvChange) =>
    [revision, operation, key, text()].join(" ");

  test("values come back as they were put, under conditions", async () => {
    const { kv } = client();
    const made = await kv.createBucket("one", { history: 3, description: "d", ttlSeconds: 600 });
    expect(made).toMatchObject({ name: "one", history: 3, description: "d", ttlSeconds: 600, values: 0 });
    expect((await failure(kv.createBucket("one"))).code).toBe("already_exists");
    expect(await kv.bucket("none")).toBeUndefined();
    expect((await kv.buckets()).map(({ name }) => name)).toContain("one");
    expect(await kv.put("one", "a/b", { n: 1 })).toBe(1);
    const entry = (await kv.get("one", "a/b"))!;
    expect([entry.key, entry.revision, entry.json<{ n: number }>().n]).toEqual(["a/b", 1, 1]);
    expect(entry.expiresAt).toBeString();
    const bytes = new Uint8Array([0, 255, 128]);
    expect(await kv.put("one", "a/b", bytes, { ifRevision: 1 })).toBe(2);
    expect((await kv.get("one", "a/b"))!.value).toEqual(bytes);
    expect((await kv.get("one", "a/b", { revision: 1 }))!.text()).toBe('{"n":1}');
    expect((await failure(kv.put("one", "a/b", "x", { ifRevision: 1 }))).code).toBe("precondition_failed");
    expect((await failure(kv.put("one", "a/b", "x", { ifAbsent: true }))).status).toBe(412);
    await kv.put("one", "c", "text", { ifAbsent: true });
    const keys: string[] = [];
    for await (const key of kv.keys("one", { filter: "*" })) keys.push(key);
    expect(keys).toEqual(["a/b", "c"]);
    await kv.delete("one", "a/b", { purge: true });
    expect(await kv.get("one", "a/b")).toBeUndefined();
    expect(await failure(kv.put("one", "c", undefined))).toBeInstanceOf(TypeError);
    await kv.deleteBucket("one");
    expect(await kv.bucket("one")).toBeUndefined();
  });

  test("a key that a URL would resolve away names no other thing, least of all its bucket", async () => {
    const { kv, config, events } = client();
    await kv.createBucket("kept");
    await kv.put("kept", "a", "1");
    for (const work of [
      ...["", ".", ".."].flatMap((key) => [kv.delete("kept", key), kv.get("kept", key)]),
      ...[kv.put("kept", "..", "2"), kv.bucket(""), config.get(""), config.delete("."), events.get("")],
    ]) {
      const { code, message } = await failure(work);
      expect({ code, message }).toEqual({
        code: "invalid_argument",
        message: expect.stringContaining("name"),
      });
    }
    expect((await kv.get("kept", "a"))!.text()).toBe("1");
  });

  test("a watch tells changes in order, from where it is told, and ends with its bucket", async () => {
    const { kv } = client();
    await kv.createBucket("watched", { history: 64 });
    await kv.put("watched", "a", "1");
    const all = reading(kv.watch("watched"));
    const some = reading(kv.watch("watched", { key: "b*" }));
    await all.hears(1);
    await kv.put("watched", "b", "2");
    await all.hears(2);
    await kv.delete("watched", "a");
    await all.hears(3);
    await some.hears(1);
    expect(all.seen.map(shown)).toEqual(["1 put a 1", "2 put b 2", "3 delete a "]);
    expect(some.seen.map(shown)).toEqual(["2 put b 2"]);
    const leaving = new AbortController();
    const late = reading(kv.watch("watched", { after: 1, signal: leaving.signal }));
    await late.hears(2);
    expect(late.seen.map(({ revision }) => revision)).toEqual([2, 3]);
    leaving.abort();
    await until(() => late.state.isOver, { about: "the end of who left" });
    expect(late.state.error).toBeUndefined();
    expect((await failure(kv.watch("none")[Symbol.asyncIterator]().next())).code).toBe("not_found");
    const ahead = kv.watch("watched", { after: 99 })[Symbol.asyncIterator]();
    expect((await failure(ahead.next())).message).toBe("after: the last revision is 3");
    await kv.deleteBucket("watched");
    await until(() => all.state.isOver && some.state.isOver, { about: "the end of the bucket" });
    expect((all.state.error as SvcError).code).toBe("not_found");
  });

  test("watches go on where a cut connection broke off, and are told nothing twice", async () => {
    const { kv, config } = client();
    await kv.createBucket("cut", { history: 64 });
    const proxy = await openProxy(() => Number(new URL(server.url).port));
    const over = createClient({ url: `http://127.0.0.1:${proxy.port}`, apiKey: server.adminKey });
    const watch = reading(over.kv.watch("cut", { after: 0 }));
    const document = reading(over.config.watch("cut"));
    await kv.put("cut", "k", "1");
    await config.put("cut", { n: 1 });
    await Promise.all([watch.hears(1), document.hears(1)]);
    proxy.closed = true;
    proxy.cut();
    for (const text of ["2", "3"]) await kv.put("cut", "k", text);
    await config.put("cut", { n: 2 });
    proxy.closed = false;
    await Promise.all([watch.hears(3), document.hears(2)]);
    expect(watch.seen.map(shown)).toEqual(["1 put k 1", "2 put k 2", "3 put k 3"]);
    expect(document.seen.map(({ data }) => data)).toEqual([{ n: 1 }, { n: 2 }]);
    await kv.deleteBucket("cut");
    await until(() => watch.state.isOver, { about: "the end" });
    await proxy.stop();
  });

  test("a watch of a bucket that was made anew meanwhile fails, or begins with what it has", async () => {
    const { kv } = client();
    await kv.createBucket("anew");
    for (const text of ["1", "2", "3"]) await kv.put("anew", "k", text);
    const proxy = await openProxy(() => Number(new URL(server.url).port));
    const over = createClient({ url: `http://127.0.0.1:${proxy.port}`, apiKey: server.adminKey });
    const failing = reading(over.kv.watch("anew"));
    const beginning = reading(over.kv.watch("anew", { onGap: "begin" }));
    await Promise.all([failing.hears(1), beginning.hears(1)]);
    proxy.closed = true;
    proxy.cut();
    await kv.deleteBucket("anew");
    await kv.createBucket("anew");
    await kv.put("anew", "k", "new");
    proxy.closed = false;
    await beginning.hears(2);
    expect(beginning.seen.map(shown)).toEqual(["3 put k 3", "1 put k new"]);
    await until(() => failing.state.isOver, { about: "the end" });
    expect((failing.state.error as SvcError).code).toBe("failed_precondition");
    await kv.deleteBucket("anew");
    await until(() => beginning.state.isOver, { about: "the end of the bucket" });
    await proxy.stop();
  });

  test("a watch of who may no more is ended by its reason", async () => {
    const { kv } = client();
    await kv.createBucket("revoked");
    const made = (await server.api("/api/v1/apikeys", { body: { name: "w", role_ids: ["role_viewer"] } }))
      .body;
    const watch = reading(client(made.key).kv.watch("revoked"));
    await kv.put("revoked", "k", "1");
    await watch.hears(1);
    await server.api(`/api/v1/apikeys/${made.id}`, { method: "DELETE" });
    await until(() => watch.state.isOver, { about: "the end" });
    expect((watch.state.error as SvcError).code).toBe("unauthenticated");
  });

  test("documents are set, merged, kept and watched", async () => {
    const { config } = client();
    expect(await config.get("app")).toBeUndefined();
    const watch = reading(config.watch<{ n: number }>("app"));
    const first = await config.put("app", { n: 1 }, { ifAbsent: true });
    await watch.hears(1);
    const second = await config.patch("app", { m: 2 });
    expect(await config.get("app")).toMatchObject({ name: "app", data: { n: 1, m: 2 }, revision: second });
    expect((await failure(config.put("app", {}, { ifRevision: first }))).code).toBe("precondition_failed");
    expect((await config.get("app", { revision: first }))!.data).toEqual({ n: 1 });
    expect((await config.history("app")).map(({ revision }) => revision)).toEqual([second, first]);
    const third = await config.rollback("app", first);
    expect(await config.list()).toContainEqual({
      name: "app",
      revision: third,
      updatedAt: expect.any(String),
    });
    await config.delete("app");
    await watch.hears(4);
    expect(watch.seen.map(({ data }) => data)).toEqual([{ n: 1 }, { n: 1, m: 2 }, { n: 1 }, null] as never);
  });

  test("without a WebSocket of the runtime the same frames come, large ones included", async () => {
    const { kv } = client();
    await kv.createBucket("node");
    const large = "x".repeat(300_000);
    for (const [at, value] of ["1", "x".repeat(200), large].entries()) await kv.put("node", `k${at}`, value);
    const texts: string[] = [];
    const ends: { code: number; reason: string }[] = [];
    const protocols = ["svc.v1", bearerProtocol(server.adminKey)];
    const open = (bucket: string) =>
      openNodeSocket(`${server.url.replace("http", "ws")}/api/v1/kv/buckets/${bucket}/watch`, protocols, {
        opened() {},
        message: (text) => texts.push(text),
        closed: (why) => ends.push(why),
      })!;
    open("node");
    await until(() => texts.length === 3, { about: "three frames" });
    expect(Buffer.from(JSON.parse(texts[2]!).value, "base64").toString()).toBe(large);
    await kv.deleteBucket("node");
    await until(() => ends.length === 1, { about: "the close" });
    expect(ends).toEqual([{ code: 1008, reason: "bucket node not found" }]);
    open("none");
    await until(() => ends.length === 2, { about: "the refusal" });
    expect(ends[1]).toEqual({ code: 1006, reason: "" });
  });
});
