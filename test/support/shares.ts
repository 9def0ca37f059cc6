import { expect } from "bun:test";
import { systemClock } from "../../src/kit/clock.ts";
import { systemIds } from "../../src/kit/ids.ts";
import { silentLog } from "../../src/kit/log.ts";
import { render, type Sql, sql } from "../../src/kit/sql.ts";
import { openStore } from "../../src/store/open.ts";
import type { Session, Store } from "../../src/store/store.ts";
import { rowsReadFor } from "./plan-rows.ts";
import { plant } from "./plant.ts";
import { type EngineName, makeHome, patience } from "./server.ts";

export const clock = systemClock();
export const ids = systemIds(clock);
export const nothing = () => {};

/** One has piled up thousands; the other has one, due after all of them. */
export const greedy = "env_a";
export const modest = "env_b";

/** So many rows for the greedy one, and one for the other. */
export const both = (many: number) =>
  [
    [greedy, many],
    [modest, 1],
  ] as const;

export interface SharedStore {
  /** Nobody else works on it. */
  bare: Store;
  /** The same: counts commits, and notes which of them served the modest one. */
  spied: Store;
  /** From now on; `isServed` is asked after each commit. */
  watch(isServed: () => Promise<boolean>): void;
  /** By how many commits the modest one was served, and how many there were. */
  seen(): { servedAfter: number | undefined; commits: number };
  /** So early, and by reading no more than that for any slice, however much is piled up. */
  expectShared(readMax?: number): Promise<void>;
  count(from: string): Promise<number>;
  gone(from: string): () => Promise<boolean>;
  /** In both environments; that of the modest one is due at `late`. */
  pile(
    table: string,
    many: number,
    due: string,
    values: Record<string, string>,
    late?: number,
  ): Promise<void>;
  close(): Promise<void>;
}

/** A store with the heads of two environments, and no server. */
export async function sharedStore(engine: EngineName): Promise<SharedStore> {
  const home = await makeHome(engine);
  const { db, databaseUrl } = home.place;
  const bare = await openStore({
    clock,
    log: silentLog,
    databaseUrl,
    file: db,
    poolSize: 4,
    limits: patience,
  });
  for (const id of [greedy, modest]) await plant(bare, "heads", 1, { environment_id: `'${id}'` });
  let commits = 0;
  let servedAfter: number | undefined;
  let asks = async (): Promise<boolean> => false;

  const plans = watchPlans(bare);
  async function committed<T>(answer: T): Promise<T> {
    commits++;
    if (servedAfter === undefined && (await asks())) servedAfter = commits;
    return answer;
  }
  const count = async (from: string) =>
    (await bare.one<{ n: number }>(sql`SELECT count(*) AS n FROM ${sql.raw(from)}`))!.n;

  return {
    bare,
    spied: {
      ...bare,
      async all<R extends object>(query: Sql) {
        await plans.look(bare, query);
        return bare.all<R>(query);
      },
      write: async (work) =>
        committed(
          await bare.write((session) =>
            work({
              ...session,
              async all<R extends object>(query: Sql) {
                await plans.look(session, query);
                return session.all<R>(query);
              },
            }),
          ),
        ),
      flush: async (flush, input) => committed(await bare.flush(flush, input)),
    },
    watch(isServed) {
      commits = 0;
      servedAfter = undefined;
      plans.clear();
      asks = isServed;
    },
    seen: () => ({ servedAfter, commits }),
    async expectShared(readMax = 500) {
      const isEarly = servedAfter !== undefined && servedAfter <= 4 + commits / 4;
      expect({ servedAfter, commits, isEarly }).toMatchObject({ isEarly: true });
      const { asked, worst, scans } = await plans.found();
      expect(asked).toBeGreaterThan(0);
      expect(worst).toBeLessThan(readMax);
      expect(scans).toEqual([]);
    },
    count,
    gone: (from) => async () => (await count(from)) === 0,
    async pile(table, many, due, values, late = clock.now() - 1) {
      const first = clock.now() - 60_000;
      await plant(bare, table, many, {
        ...values,
        environment_id: `'${greedy}'`,
        [due]: `${first} + n`,
      });
      const other = Object.entries(values).map(([name, text]) => [name, text.replaceAll(greedy, modest)]);
      await plant(bare, table, 1, {
        ...Object.fromEntries(other),
        environment_id: `'${modest}'`,
        [due]: `${late}`,
      });
    },
    async close() {
      await bare.close();
      await home.remove();
    },
  };
}

/** Looks at how the store goes about the questions of turns: where something is due, and the first of each place. */
function watchPlans(store: Store) {
  let worst = 0;
  let asked = new Map<string, Sql>();
  return {
    clear() {
      worst = 0;
      asked = new Map();
    },
    async look(reader: Pick<Session, "all">, query: Sql): Promise<void> {
      const { text } = render(query, () => "?", "any");
      if (!text.includes(" AS turn") && !text.includes('"environmentId"')) return;
      asked.set(text, query);
      if (store.engine !== "postgres") return;
      worst = Math.max(worst, await rowsReadFor(reader, query));
    },
    /** Rows read for the worst of them on Postgres; on libSQL, what is read as a whole or sorted. */
    async found(): Promise<{ asked: number; worst: number; scans: string[] }> {
      if (store.engine === "postgres") return { asked: asked.size, worst, scans: [] };
      const steps: { detail: string }[] = [];
      // By the writer: a reader would go on seeing the database as it was.
      for (const query of asked.values())
        steps.push(...(await store.write((session) => session.all<Step>(sql`EXPLAIN QUERY PLAN ${query}`))));
      const scans = steps
        .map(({ detail }) => detail)
        .filter((detail) => /^SCAN [del]$|TEMP B-TREE/.test(detail));
      return { asked: asked.size, worst: 0, scans };
    },
  };
}

interface Step {
  detail: string;
}
