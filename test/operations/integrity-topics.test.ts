import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { topicChecks } from "../../src/domain/log/topics/invariants.ts";
import { groupCheck } from "../../src/domain/realtime/groups/service.ts";
import { integrityRowsMax } from "../../src/kit/limits.ts";
import { column, sql } from "../../src/kit/sql.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

/** Count, and the id of the oldest. */
type Found = (string | number | undefined)[];

describe.each(engines)("integrity of topics on %s", (engine) => {
  let server: TestServer;
  beforeAll(async () => {
    server = await startTestServer({ engine });
  });
  afterAll(() => server.stop());

  const write = (query: ReturnType<typeof sql>) =>
    server.running.domain.store.write((session) => session.run(query));

  test("the log of topics: what is missing in it or at its end is named, and a group behind it", async () => {
    const messages = [1, 2, 3, 4].map((n) => ({ topic: "whole", data: { n } }));
    expect((await server.rpc("PubSubService", "PublishBatch", { messages })).status).toBe(200);
    for (const pattern of ["topic:whole", "events:whole"]) {
      const name = pattern.replace(":", ".");
      expect((await server.rpc("PubSubService", "CreateConsumerGroup", { name, pattern })).status).toBe(200);
    }
    const { store } = server.running.domain;
    const checks = [...topicChecks(store), groupCheck(store)];
    const well: Found = [0, undefined];
    const shows = async (wanted: Found[]) => {
      const found = await Promise.all(checks.map((check) => check.run("env_default")));
      expect(found.map(({ count, oldest }) => [count, oldest?.id])).toEqual(wanted);
    };
    await shows([well, well, well]);
    const here = sql`environment_id = 'env_default'`;
    const tampered: [ReturnType<typeof sql>, ReturnType<typeof sql>, Found[]][] = [
      [
        sql`UPDATE topic_messages SET position = 100 WHERE ${here} AND position = 2`,
        sql`UPDATE topic_messages SET position = 2 WHERE ${here} AND position = 100`,
        [[96, "position 5"], [96, "position 2"], well],
      ],
      [
        sql`UPDATE topic_messages SET environment_id = 'env_none' WHERE ${here} AND position IN (1, 3)`,
        sql`UPDATE topic_messages SET environment_id = 'env_default' WHERE environment_id = 'env_none'`,
        [well, [2, "position 1"], well],
      ],
      [
        sql`UPDATE topic_messages SET environment_id = 'env_none' WHERE ${here} AND position = 4`,
        sql`UPDATE topic_messages SET environment_id = 'env_default' WHERE environment_id = 'env_none'`,
        [[1, "position 4"], well, well],
      ],
      [
        sql`UPDATE topic_heads SET position = 3 WHERE ${here}`,
        sql`UPDATE topic_heads SET position = 4 WHERE ${here}`,
        [[1, "position 4"], well, [1, "default/topic.whole"]],
      ],
      [
        sql`UPDATE topic_messages SET environment_id = 'env_none' WHERE ${here} AND position <= 3`,
        sql`UPDATE topic_messages SET environment_id = 'env_default' WHERE environment_id = 'env_none'`,
        [well, [3, "position 1"], well],
      ],
      [
        sql`UPDATE consumer_groups SET position = position + 1 WHERE ${here} AND name = 'events.whole'`,
        sql`UPDATE consumer_groups SET position = position - 1 WHERE ${here} AND name = 'events.whole'`,
        [well, well, [1, "default/events.whole"]],
      ],
    ];
    const names = checks.map(({ name }) => name);
    /** As a report has them, which is believed for a moment. */
    const reported = (wanted: number[]) =>
      until(
        async () => {
          const { body } = await server.api("/api/v1/integrity");
          const list = body.checks as { name: string; count: number }[];
          const counts = names.map((name) => list.find((one) => one.name === name)?.count);
          return Bun.deepEquals(counts, wanted);
        },
        { about: `the report to say ${wanted}`, deadlineMs: 10_000, everyMs: 100 },
      );
    await reported([0, 0, 0]);
    for (const [break_, mend, wanted] of tampered) {
      await write(break_);
      await shows(wanted);
      if (wanted === tampered[0]![2]) await reported([96, 96, 0]);
      await write(mend);
      await shows([well, well, well]);
    }
    await write(sql`UPDATE topic_heads SET retention_floor = 4 WHERE ${here}`);
    await write(sql`DELETE FROM topic_messages WHERE ${here} AND position < 4`);
    await shows([well, well, well]);
    await write(sql`UPDATE topic_heads SET retention_floor = 5 WHERE ${here}`);
    await write(sql`DELETE FROM topic_messages WHERE ${here}`);
    await shows([well, well, well]);
  });

  test.if(engine === "libsql")("no look for gaps compares messages with the end of a range", async () => {
    const { store } = server.running.domain;
    const plans: string[] = [];
    const gaps = topicChecks({
      ...store,
      async one<Row extends object>(query: ReturnType<typeof sql>) {
        const steps = await store.all<{ detail: string }>(sql`EXPLAIN QUERY PLAN ${query}`);
        plans.push(...steps.map(({ detail }) => detail).filter((detail) => detail.startsWith("SEARCH s ")));
        return store.one<Row>(query);
      },
    }).find(({ name }) => name === "topics.gaps")!;
    await gaps.run("env_default");
    expect(plans).toEqual(["SEARCH s USING PRIMARY KEY ((environment_id,position)>(?,?))"]);
  });

  test("a gap far behind is come to slice by slice, and stays seen", async () => {
    const { store } = server.running.domain;
    const count = integrityRowsMax * 3;
    const one = "env_walked";
    class Undone extends Error {}
    const found: number[] = [];
    await store
      .write(async (session) => {
        await session.run(
          sql`INSERT INTO topic_heads (environment_id, position, last_at, retention_floor) VALUES (${one}, ${count}, 1, 0)`,
        );
        for (let from = 1; from <= count; from += integrityRowsMax) {
          const positions = Array.from({ length: integrityRowsMax }, (_, at) => from + at);
          await session.run(sql`INSERT INTO topic_messages (environment_id, position, id, topic, data, at)
            SELECT ${one}, n.position, 'evt', 't', '{}', 1
            FROM ${session.seams.rowsFrom("n", { position: column.bigint(positions) })}`);
        }
        const reader = { all: session.all.bind(session), one: session.one.bind(session) };
        const gaps = topicChecks(reader).find(({ name }) => name === "topics.gaps")!;
        const look = async () => found.push((await gaps.run(one)).count);
        await look();
        await session.run(
          sql`DELETE FROM topic_messages WHERE environment_id = ${one} AND position = ${integrityRowsMax + 7}`,
        );
        for (let times = 0; times < 3; times++) await look();
        await session.run(sql`INSERT INTO topic_messages (environment_id, position, id, topic, data, at)
          VALUES (${one}, ${integrityRowsMax + 7}, 'evt', 't', '{}', 1)`);
        await look();
        throw new Undone();
      })
      .catch((error: unknown) => {
        if (!(error instanceof Undone)) throw error;
      });
    expect(found).toEqual([0, 1, 1, 1, 0]);
  });
});
