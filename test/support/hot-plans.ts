import { systemClock } from "../../src/kit/clock.ts";
import { silentLog } from "../../src/kit/log.ts";
import type { Bound, Sql } from "../../src/kit/sql.ts";
import { sql } from "../../src/kit/sql.ts";
import { openClient } from "../../src/store/postgres-client.ts";
import { postgresSeams, renderPostgres } from "../../src/store/postgres-text.ts";
import type { Flush, Session, Store } from "../../src/store/store.ts";

interface Node {
  "Node Type": string;
  "Index Name"?: string;
  "Relation Name"?: string;
  "Actual Rows": number;
  "Actual Loops": number;
  "Rows Removed by Filter"?: number;
  "Rows Removed by Index Recheck"?: number;
  "Shared Hit Blocks": number;
  "Shared Read Blocks": number;
  Plans?: Node[];
}

/** What a statement cost that was tried: rows that the leaves of its plan looked at, and pages. */
export interface Cost {
  rows: number;
  pages: number;
  /** Of the pages those that its scans read: not what is written into every index, whatever the plan. */
  scanned: number;
  /** What read most of its pages. */
  by: string;
}

const ownRows = (node: Node): number =>
  (node["Actual Rows"] +
    (node["Rows Removed by Filter"] ?? 0) +
    (node["Rows Removed by Index Recheck"] ?? 0)) *
  node["Actual Loops"];

const pagesOf = (node: Node): number => node["Shared Hit Blocks"] + node["Shared Read Blocks"];

function leavesOf(node: Node): Node[] {
  return node.Plans?.length ? node.Plans.flatMap(leavesOf) : [node];
}

const nodesOf = (node: Node): Node[] => [node, ...(node.Plans ?? []).flatMap(nodesOf)];

/** Without those of the nodes below it. */
const ownPages = (node: Node): number =>
  Math.max(
    0,
    (node.Plans ?? []).reduce((left, below) => left - pagesOf(below), pagesOf(node)),
  );

function costOf(plan: Node): Cost {
  const scans = nodesOf(plan).filter(
    (node) =>
      (node["Relation Name"] ?? node["Index Name"]) !== undefined && node["Node Type"] !== "ModifyTable",
  );
  const [worst] = scans.toSorted((a, b) => ownPages(b) - ownPages(a));
  return {
    rows: leavesOf(plan).reduce((sum, leaf) => sum + ownRows(leaf), 0),
    pages: pagesOf(plan),
    scanned: scans.reduce((sum, node) => sum + ownPages(node), 0),
    by: `${worst?.["Node Type"]} of ${worst?.["Relation Name"]} by ${worst?.["Index Name"]}`,
  };
}

const literal = (value: Bound): string => {
  if (value === null) return "NULL";
  const text = value instanceof Uint8Array ? `\\x${Buffer.from(value).toString("hex")}` : String(value);
  return `'${text.replaceAll("'", "''")}'`;
};

type Ask = (text: string) => Promise<readonly object[]>;

const kinds = ["custom", "generic"] as const;
const isPlanned = (text: string) => /^\s*(WITH|SELECT|INSERT|UPDATE|DELETE)\b/.test(text);

let prepared = 0;

/** What a statement costs by a plan for its values and by one for any, in a transaction that keeps nothing of it. */
async function costsOf(ask: Ask, query: Sql): Promise<Cost[]> {
  const { text, values } = renderPostgres(query);
  const given = values.length === 0 ? "" : `(${values.map(literal).join(", ")})`;
  const found: Cost[] = [];
  await ask("SAVEPOINT hot_plan");
  for (const kind of kinds) {
    const name = `hot_plan_${++prepared}`;
    await ask(`SET LOCAL plan_cache_mode = force_${kind}_plan`);
    await ask(`PREPARE ${name} AS ${text}`);
    const [row] = await ask(`EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) EXECUTE ${name}${given}`);
    const plan = (row as { "QUERY PLAN": unknown })["QUERY PLAN"];
    found.push(costOf(((typeof plan === "string" ? JSON.parse(plan) : plan) as [{ Plan: Node }])[0].Plan));
    await ask("ROLLBACK TO hot_plan");
    await ask(`DEALLOCATE ${name}`);
  }
  return found;
}

export interface HotPlans {
  around(store: Store): Store;
  /** Told of each statement that is about to run, with what it costs by each of its plans. */
  onCost: ((text: string, cost: Cost, isFlush: boolean) => void) | undefined;
  /** Counts the tables, and cleans up what was tried and taken back. */
  vacuum(): Promise<unknown>;
  /** The same without counting: what is known of the values stays as it is. */
  clean(): Promise<unknown>;
  /** Keeps every version of every row from here on; answers how to end that. */
  holdSnapshot(): Promise<() => Promise<unknown>>;
  close(): void;
}

/**
 * Tries each statement of a server right before it runs, on the rows that it will find, with a plan for its values and with
 * one for any, and takes back what that wrote.
 */
export async function hotPlans(url: string): Promise<HotPlans> {
  const open = (hot: boolean) =>
    openClient({
      ...{ url, clock: systemClock(), log: silentLog, applicationName: "svc-plans", may: {}, hot },
      limits: { statementMs: 60_000, lockMs: 30_000, idleInTransactionMs: 0, connectMs: 20_000 },
    });
  const [hot, general, holder] = await Promise.all([open(true), open(false), open(false)]);
  let turn: Promise<unknown> = Promise.resolve();

  const look = async (ask: Ask, query: Sql, isFlush = false) => {
    const { text } = renderPostgres(query);
    if (!plans.onCost || !isPlanned(text)) return;
    for (const cost of await costsOf(ask, query)) plans.onCost?.(text, cost, isFlush);
  };
  /** In a transaction of its own, one after the other. */
  const apart = (client: typeof hot, query: Sql) => {
    if (!plans.onCost) return;
    const ask: Ask = (text) => client.ask(text, [], false);
    const tried = turn.then(async () => {
      await ask("BEGIN");
      // What fails here fails where it is meant to run, too.
      await look(ask, query, client === hot).catch(() => {});
      await ask("ROLLBACK");
    });
    turn = tried;
    return tried;
  };
  const within = (session: Session, query: Sql) => look((text) => session.all(sql.raw(text)), query);

  const plans: HotPlans = {
    onCost: undefined,
    around: (store) => ({
      ...store,
      async all<R extends object>(query: Sql) {
        await apart(general, query);
        return store.all<R>(query);
      },
      async one<R extends object>(query: Sql) {
        await apart(general, query);
        return store.one<R>(query);
      },
      async flush<I, R extends object>(flush: Flush<I, R>, input: I) {
        await apart(hot, flush.postgres(input, postgresSeams));
        return store.flush(flush, input);
      },
      write: (work) =>
        store.write((session) =>
          work({
            ...session,
            async all<R extends object>(query: Sql) {
              await within(session, query);
              return session.all<R>(query);
            },
            async one<R extends object>(query: Sql) {
              await within(session, query);
              return session.one<R>(query);
            },
            async run(query) {
              await within(session, query);
              return session.run(query);
            },
          }),
        ),
    }),
    vacuum: () => holder.ask("VACUUM ANALYZE", [], false),
    clean: () => holder.ask("VACUUM", [], false),
    async holdSnapshot() {
      await holder.ask("BEGIN ISOLATION LEVEL REPEATABLE READ", [], false);
      await holder.ask("SELECT 1 FROM heads", [], false);
      return () => holder.ask("ROLLBACK", [], false);
    },
    close() {
      holder.destroy();
      hot.destroy();
      general.destroy();
    },
  };
  return plans;
}
