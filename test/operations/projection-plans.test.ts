import { expect, test } from "bun:test";
import { render, type Sql, sql } from "../../src/kit/sql.ts";
import type { Session, Store } from "../../src/store/store.ts";
import { projectionCaller } from "../support/projections.ts";
import { engines, startTestServer } from "../support/server.ts";

/** Of projections, and their reads of the log. */
const isOurs = (text: string) => /projection/.test(text) || /FROM events\s+WHERE/.test(text);

const textOf = (query: Sql) => render(query, () => "?", "any").text;

/** Each statement once, as it came with its values. */
function noting(store: Store, seen: Map<string, Sql>): Store {
  const note = (query: Sql): Sql => {
    seen.set(textOf(query), query);
    return query;
  };
  const around = <T extends Pick<Session, "all" | "one">>(reads: T): T => ({
    ...reads,
    all: (query: Sql) => reads.all(note(query)),
    one: (query: Sql) => reads.one(note(query)),
  });
  return {
    ...around(store),
    write: (work) =>
      store.write((session) => work({ ...around(session), run: (query: Sql) => session.run(note(query)) })),
  };
}

const rowsMax = 20_000;
/** Tables with many rows; the others have a few for each projection. */
const large = ["projection_states", "projection_pending", "events"];
const aliases = [...large, "s", "q"];

// SQLite blocks the node while it tests every row of a table against a list: a second for a thousand partitions.
for (const engine of engines)
  test(`no statement of projections reads a whole table on ${engine}`, async () => {
    const seen = new Map<string, Sql>();
    const server = await startTestServer({ engine, aroundStore: (store) => noting(store, seen) });
    try {
      const caller = projectionCaller(server);
      const { store } = server.running.domain;
      for (const name of ["full", "p"])
        await caller.ok("RegisterProjection", { name, events: ["e", "w.*"], partitionKey: "$.data.id" });
      const rows = sql`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ${rowsMax})`;
      const key = (
        table: string,
      ) => sql`${rows} INSERT INTO ${sql.raw(table)} (environment_id, name, generation,
        partition_key,`;
      const of = sql`SELECT ${server.env}, 'full', 1, 'p' || CAST(i AS TEXT)`;
      await store.write(async (session) => {
        await session.run(sql`${key("projection_states")} state, last_position, version, updated_at)
          ${of}, '{}', i, 1, 1 FROM n`);
        await session.run(sql`${key("projection_pending")} first_position, last_position, event_count)
          ${of}, i, i, 1 FROM n`);
      });
      seen.clear();
      const live = async () => {
        // Of a short list SQLite goes through the list first, whatever the statement says.
        const ids = ["a", "b", ...Array.from({ length: 500 }, (_, at) => `c${at}`)];
        const sent = await Promise.all(ids.map((id) => caller.emit("e", { id })));
        const { fence } = await caller.poll("p", { runnerId: "r", batchSize: 1_000 });
        const more = { runnerId: "r", fence };
        const states = ids.map((partitionKey, at) => ({
          ...{ partitionKey, state: { at }, lastEventId: sent[at]!.id, lastEventSeq: `${sent[at]!.seq}` },
        }));
        await caller.ok("SaveProjectionStates", { name: "p", states, ...more });
        const bad = await caller.emit("e", { id: "a" });
        await caller.poll("p", { runnerId: "r", partition: "a" });
        await caller.poll("p", { runnerId: "r" });
        const failed = { partitionKey: "a", eventId: bad.id, eventSeq: `${bad.seq}`, message: "no" };
        await caller.ok("ReportProjectionError", { name: "p", ...failed, ...more });
        await caller.ok("ResumeProjection", { name: "p", skipEventId: bad.id });
        await caller.ok("WaitProjectionCatchup", {
          name: "p",
          minSeq: `${bad.seq}`,
          partition: "b",
          timeout: "0s",
        });
        await caller.ok("GetProjection", { name: "p", partition: "a" });
        await caller.status("p");
        await server.api("/api/v1/projections/full/partitions?q=nobody");
        await server.api("/api/v1/integrity");
        await caller.ok("RebuildProjection", { name: "p", strategy: "side_by_side" });
        await caller.ok("CancelRebuild", { name: "p" });
        await server.running.tick("projections.sweep");
      };
      await live();
      const mine = [...seen.values()].filter((query) => isOurs(textOf(query)));
      expect(mine.length).toBeGreaterThan(30);
      for (const hasStatistics of [false, true]) {
        if (hasStatistics)
          for (const table of large) await store.write((s) => s.run(sql`ANALYZE ${sql.raw(table)}`));
        const bad: string[] = [];
        for (const query of mine) {
          const plans = await planOf(store, query);
          const isList =
            /\bord <= |\bjson_each\b/.test(textOf(query)) || /column\d+ AS ord/.test(textOf(query));
          if (plans.some((line) => isScan(line) || (isList && isPart(line))))
            bad.push([textOf(query), ...plans].join("\n"));
        }
        expect(bad).toEqual([]);
      }
    } finally {
      await server.stop();
    }
  }, 120_000);

async function planOf(store: Store, query: Sql): Promise<string[]> {
  if (!/^\s*(SELECT|UPDATE|DELETE|INSERT|WITH)/.test(textOf(query))) return [];
  const isSqlite = store.engine === "libsql";
  const lines = await store.all<Record<string, string>>(
    isSqlite ? sql`EXPLAIN QUERY PLAN ${query}` : sql`EXPLAIN ${query}`,
  );
  return lines.map((line) => (isSqlite ? line.detail! : line["QUERY PLAN"]!));
}

/** A whole table, or an index of it without a condition; an empty table of PostgreSQL may be read whole. */
const isScan = (line: string): boolean =>
  aliases.some((table) => new RegExp(`^SCAN ${table}\\b`).test(line)) ||
  large.slice(0, 1).some((table) => new RegExp(`Seq Scan on ${table}\\b`).test(line));

/** In SQLite, all partitions of a generation, each of which is held against a list. */
const isPart = (line: string): boolean =>
  /^SEARCH (s|q|projection_states|projection_pending)\b/.test(line) && !/partition_key=/.test(line);
