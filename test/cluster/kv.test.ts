import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { sql } from "../../src/kit/sql.ts";
import { chanceOf } from "../support/chance.ts";
import { base, kvOf, pathOf } from "../support/kv.ts";
import { isNight } from "../support/night.ts";
import { type Home, makeHome, startTestServer, type TestServer } from "../support/server.ts";
import { isSoak } from "../support/soak.ts";

const callersEach = 32;
/** Of 64 callers: 10,048 in all as a soak. */
const raisesEach = isSoak ? 157 : isNight ? 5 : 2;

describe("buckets of two nodes on one database", () => {
  let home: Home;
  let nodes: TestServer[] = [];
  const one = kvOf(() => nodes[0]!);
  const two = kvOf(() => nodes[1]!);

  beforeAll(async () => {
    home = await makeHome("postgres");
    for (const _ of [1, 2]) nodes.push(await startTestServer({ engine: "postgres", home }));
  }, 120_000);
  afterAll(async () => {
    await Promise.all(nodes.map((node) => node.stop()));
    nodes = [];
    await home?.remove();
  }, 120_000);

  test("what one node acknowledged, the other reads, and a bucket gone is gone", async () => {
    await one.make("seen");
    for (let number = 1; number <= 20; number++) {
      const [writer, reader] = number % 2 === 0 ? [one, two] : [two, one];
      expect((await writer.put(pathOf("seen", "k"), `${number}`)).body).toEqual({ revision: number });
      expect(await reader.textOf(pathOf("seen", "k"))).toBe(`${number}`);
    }
    expect((await two.remove(`${base}/seen`)).status).toBe(204);
    expect((await one.put(pathOf("seen", "k"), "late")).status).toBe(404);
    await one.make("seen");
    expect((await two.put(pathOf("seen", "k"), "new")).body).toEqual({ revision: 1 });
  });

  test("a value that a node has read before is read anew once the other has changed it", async () => {
    await one.make("quiet");
    const paths = ["a", "b", "c"].map((key) => pathOf("quiet", key));
    const stored = new Map<string, string>();
    const chance = chanceOf("quiet");
    for (let round = 0; round < 150; round++) {
      const path = chance.oneOf(paths);
      const act = chance.between(0, 99);
      if (act < 20) {
        stored.set(path, `${round}`);
        await chance.oneOf([one, two]).put(path, `${round}`);
      } else if (act < 25) {
        stored.delete(path);
        await chance.oneOf([one, two]).remove(path);
      } else if (act < 27) {
        stored.clear();
        await one.remove(`${base}/quiet`);
        await two.make("quiet");
      } else if (act < 30) {
        // Gone as soon as it is there.
        stored.delete(path);
        await chance.oneOf([one, two]).put(`${path}?ttl_seconds=1`, "short");
        await Bun.sleep(1_001);
      } else
        expect([round, await chance.oneOf([one, two]).textOf(path)]).toEqual([
          round,
          stored.get(path) ?? 404,
        ]);
    }
  });

  test("a watch at one node is told what the other writes, in order, and of the end of its bucket", async () => {
    await one.make("watched", { history: 64 });
    const sockets = await Promise.all([one.watch("watched"), two.watch("watched", "?key=k*")]);
    const puts = [one, two].flatMap(({ put }) =>
      Array.from({ length: 30 }, (_, at) => put(pathOf("watched", `k${at % 3}`), `${at}`)),
    );
    await Promise.all(puts);
    for (const socket of sockets) {
      const frames = await socket.wait("kv_update", 60);
      expect(frames.map(({ revision }) => revision)).toEqual(Array.from({ length: 60 }, (_, at) => at + 1));
    }
    await one.remove(`${base}/watched`);
    for (const socket of sockets) expect((await socket.whenClosed()).code).toBe(1008);
  });

  test(
    "64 callers raise one counter by compare-and-set, and no raise is lost or counted twice",
    async () => {
      await one.make("counters", { history: 64 });
      const path = pathOf("counters", "n");
      await one.put(path, "0");
      const raise = async ({ get, put }: typeof one) => {
        for (let left = raisesEach; left > 0; ) {
          const { value, revision } = (await get(path)).body;
          const next = Number(Buffer.from(value, "base64").toString()) + 1;
          const { status } = await put(path, `${next}`, { headers: { "if-match": `${revision}` } });
          expect([200, 412]).toContain(status);
          if (status === 200) left--;
        }
      };
      await Promise.all([one, two].flatMap((node) => Array.from({ length: callersEach }, () => raise(node))));
      const raises = 2 * callersEach * raisesEach;
      expect(await two.textOf(path)).toBe(`${raises}`);
      expect((await one.get(path)).body.revision).toBe(raises + 1);
      const kept = await nodes[0]!.running.domain.store.all<{ revision: number }>(
        sql`SELECT revision FROM kv_history WHERE key = 'n' ORDER BY revision`,
      );
      expect(kept.map(({ revision }) => revision)).toEqual(
        Array.from({ length: 63 }, (_, at) => raises + 1 - 63 + at),
      );
      expect(await one.isBalanced()).toBe(true);
    },
    isSoak ? 900_000 : 120_000,
  );

  test("changes of many keys and buckets cross without waiting for each other in a circle", async () => {
    const buckets = ["a", "b", "c", "d"];
    for (const bucket of buckets) await one.make(bucket);
    const puts = [one, two].flatMap(({ put }) =>
      Array.from({ length: 400 }, (_, at) =>
        put(pathOf(buckets[(at * 7) % 4]!, `key-${at % 50}`), `${at}`).then(({ status }) => status),
      ),
    );
    expect(new Set(await Promise.all(puts))).toEqual(new Set([200]));
    const revisions = (await nodes[1]!.running.domain.store.all<{ revision: number }>(
      sql`SELECT revision FROM kv_buckets WHERE name IN ('a', 'b', 'c', 'd')`,
    )) as { revision: number }[];
    expect(revisions.reduce((sum, { revision }) => sum + revision, 0)).toBe(800);
    expect(await two.isBalanced()).toBe(true);
  }, 120_000);
});
