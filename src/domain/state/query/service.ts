import type { Clock } from "../../../kit/clock.ts";
import { openComputeShares } from "../../../kit/compute-shares.ts";
import { Fault, invalid } from "../../../kit/fault.ts";
import type { Metrics } from "../../../kit/metrics.ts";
import type { EnvironmentDatabases, QueryAnswer } from "../../../store/environment-databases.ts";
import type { StoreEngine } from "../../../store/store.ts";
import { type AdmittedHandler, admitHandler, admitTable, isSameTable } from "./definitions.ts";
import { quotedName } from "./expressions.ts";
import { conditionOf, orderOf } from "./filter.ts";
import {
  pageOffsetMax,
  queryBytesMax,
  queryMsDefault,
  queryMsMax,
  queryRowsDefault,
  queryRowsMax,
  sqlBytesMax,
} from "./limits.ts";
import { type AdmittedQuery, admitQuery, loadParser } from "./selects.ts";

export type { Cell, QueryAnswer } from "../../../store/environment-databases.ts";

export interface QueryInput {
  query: string;
  /** Zero and undefined: the default. */
  timeoutMs?: number | undefined;
  maxRows?: number | undefined;
}

/** Reads over what one environment holds, by texts of its callers. */
export type Queries = ReturnType<typeof openQueries>;

interface QueriesDeps {
  clock: Pick<Clock, "elapsed">;
  engine: StoreEngine;
  databases: Pick<EnvironmentDatabases, "query">;
  onQuery: (outcome: "answered" | "truncated" | "refused" | "failed") => void;
}

/** A number from 1 that a caller sends; zero stands for none. */
export function boundOf(
  field: string,
  given: number | undefined,
  { most, otherwise }: { most: number; otherwise: number },
): number {
  if (given === undefined || given === 0) return otherwise;
  if (!Number.isSafeInteger(given) || given < 0 || given > most)
    throw invalid(field, `must be from 1 to ${most}`);
  return given;
}

/** Texts that are asked again, and those that a gate asked about before they run. */
const rememberedMax = 100;
const sharedWork = "SQL texts";

export function openQueries({ clock, engine, databases, onQuery }: QueriesDeps) {
  const remembered = new Map<string, AdmittedQuery | Fault>();
  const inShare = openComputeShares(clock);

  function admittedOf(query: string): AdmittedQuery | Fault {
    try {
      return admitQuery(engine, query);
    } catch (error) {
      if (error instanceof Fault) return error;
      throw error;
    }
  }

  function outcomeOf(query: string): AdmittedQuery | Fault {
    const found = remembered.get(query);
    if (found || query.length > sqlBytesMax) return found ?? admittedOf(query);
    if (remembered.size >= rememberedMax) remembered.clear();
    const outcome = admittedOf(query);
    remembered.set(query, outcome);
    return outcome;
  }

  function admit(query: string): AdmittedQuery {
    const outcome = outcomeOf(query);
    if (outcome instanceof Fault) throw outcome;
    return outcome;
  }

  async function run(environmentId: string, { query, timeoutMs, maxRows }: QueryInput, signal: AbortSignal) {
    const { text, isExplain } = admit(query);
    return databases.query(environmentId, {
      ...{ text, isExplain, values: [], signal, bytesMax: queryBytesMax },
      timeoutMs: boundOf("timeout_ms", timeoutMs, { most: queryMsMax, otherwise: queryMsDefault }),
      rowsMax: boundOf("max_rows", maxRows, { most: queryRowsMax, otherwise: queryRowsDefault }),
    });
  }

  return {
    async execute(environmentId: string, input: QueryInput, signal: AbortSignal): Promise<QueryAnswer> {
      try {
        const answer = await run(environmentId, input, signal);
        onQuery(answer.isTruncated ? "truncated" : "answered");
        return answer;
      } catch (error) {
        onQuery(error instanceof Fault && error.kind === "invalid_argument" ? "refused" : "failed");
        throw error;
      }
    },

    /** A page of one table of a SQL projection, and how many rows there are without the page. */
    async readTable(
      environmentId: string,
      table: string,
      { where, orderBy, limit, offset }: { where: string; orderBy: string; limit: number; offset: number },
      signal: AbortSignal,
    ): Promise<{ answer: QueryAnswer; totalCount: number }> {
      const condition = conditionOf(engine, where);
      const order = orderOf(engine, orderBy);
      const from = `FROM ${quotedName(engine, table)}${condition.text}`;
      const rowsMax = boundOf("limit", limit, { most: queryRowsMax, otherwise: queryRowsMax });
      if (!Number.isSafeInteger(offset) || offset < 0 || offset > pageOffsetMax)
        throw invalid("offset", `must be from 0 to ${pageOffsetMax}`);
      const { values } = condition;
      const ask = { values, signal, isExplain: false, bytesMax: queryBytesMax, timeoutMs: queryMsDefault };
      const [answer, counted] = await Promise.all([
        databases.query(environmentId, {
          ...{ ...ask, rowsMax },
          text: `SELECT * ${from}${order} LIMIT ${rowsMax} OFFSET ${offset}`,
        }),
        databases.query(environmentId, { ...ask, rowsMax: 1, text: `SELECT count(*) AS rows ${from}` }),
      ]);
      onQuery("answered");
      return { answer, totalCount: Number(counted.rows[0]?.[0] ?? 0) };
    },

    /**
     * What stands in the parentheses of the one CREATE TABLE, and its handlers, read in their caller's share
     * of this thread's time: at once, so that a definition of any length is read after a pause.
     */
    async admitDefinition(
      holder: string,
      { table, tableSql, handlers }: { table: string; tableSql: string; handlers: [string, string][] },
    ): Promise<{ columns: string; handlers: AdmittedHandler[] }> {
      await loadParser();
      return inShare(holder, sharedWork, () => ({
        handlers: handlers.map(([event, text]) => admitHandler(engine, { event, text, table })),
        columns: admitTable(engine, tableSql, table),
      }));
    },
    /** Whether the columns of two definitions, also of versions before, are of one table. */
    isSameTable,
    /** Reads a text once for all that ask about it, in its caller's share of this thread's time. */
    async read(holder: string, text: unknown): Promise<void> {
      await loadParser();
      if (typeof text === "string" && !remembered.has(text))
        inShare(holder, sharedWork, () => outcomeOf(text));
    },

    /** The tables that a text reads; none where it is not admitted, which `execute` says. */
    tablesOf(text: string): string[] {
      const outcome = outcomeOf(text);
      return outcome instanceof Fault ? [] : outcome.tables;
    },
  };
}

export function meterQueries(metrics: Metrics): QueriesDeps["onQuery"] {
  const queries = metrics.counter({
    name: "svc_queries_total",
    help: "SQL queries of callers, by how they ended.",
    labels: ["outcome"],
  });
  return (outcome) => queries(outcome).add();
}
