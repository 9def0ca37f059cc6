import { backoff } from "../kit/backoff.ts";
import type { Clock } from "../kit/clock.ts";
import { systemIds } from "../kit/ids.ts";
import type { Log } from "../kit/log.ts";
import { type Metrics, noMetrics } from "../kit/metrics.ts";
import { type Sql, sql } from "../kit/sql.ts";
import { pool } from "./pool.ts";
import {
  type Answer,
  type DatabaseTls,
  type Limits,
  openClient,
  type PostgresClient,
} from "./postgres-client.ts";
import { isConflict, toPostgresTrouble } from "./postgres-errors.ts";
import { Primary } from "./postgres-primary.ts";
import { postgresSeams, renderPostgres } from "./postgres-text.ts";
import { watchConflicts, watchLockWaiters, watchPool, watchWaits } from "./postgres-watch.ts";
import { postgresWritable } from "./postgres-writable.ts";
import { afterLast, type Row, type Session, type Store, StoreError } from "./store.ts";

export interface PostgresOptions {
  url: string;
  clock: Clock;
  log: Log;
  /** Connections for reads and interactive writes. */
  poolSize?: number;
  /** Connections that only flushes use, so that stuck interactive writes do not stop them. */
  hotPoolSize?: number;
  applicationName?: string;
  tls?: DatabaseTls | undefined;
  /** An acknowledged write may then be lost by a crash of the server; for tests that prove it. */
  acceptAsyncCommit?: boolean;
  limits?: Partial<Limits>;
  metrics?: Metrics;
  /** Which server is written, known to all who connect; made of the URL when left out. */
  primary?: Primary | undefined;
}

const limitsDefault: Limits = {
  statementMs: 30_000,
  lockMs: 2_000,
  idleInTransactionMs: 1_000,
  connectMs: 3_000,
};
/** A flush takes milliseconds, and no lock longer than `lockMs`: after this its connection is lost. */
const flushStatementMs = 10_000;
const poolSizeDefault = 8;
const poolWaitMsMax = 5_000;
const attemptsMax = 6;
const retryMs = { minMs: 4, maxMs: 200 };
/** Texts that the server keeps a plan for, a connection; lists of every length must not fill its memory. */
const preparedMax = 400;

const lockWaiters = (applicationName: string) => sql`SELECT count(*) AS count FROM pg_stat_activity
  WHERE datname = current_database() AND application_name = ${applicationName} AND wait_event_type = 'Lock'`;

export async function openPostgres(options: PostgresOptions): Promise<Store> {
  const { clock, log, metrics = noMetrics, applicationName = "svc" } = options;
  const limits = { ...limitsDefault, ...options.limits };
  const may = {};
  const pause = backoff({ ...retryMs, chance: systemIds(clock).chance });
  const primary = options.primary ?? new Primary({ url: options.url, clock, log });
  const openAt = (url: string, hot: boolean, statementMs = limits.statementMs) =>
    openClient({
      url,
      clock,
      log,
      applicationName,
      ...(options.tls !== undefined && { tls: options.tls }),
      limits: { ...limits, statementMs: hot ? Math.min(statementMs, flushStatementMs) : statementMs },
      hot,
      may,
    });
  const open = (hot: boolean) => () => primary.connect((url) => openAt(url, hot));
  const poolOf = (name: "general" | "hot", sizeMax = poolSizeDefault) => {
    const onWaited = watchWaits(metrics, name);
    const made = pool({
      clock,
      sizeMax,
      waitMsMax: poolWaitMsMax,
      open: open(name === "hot"),
      ...(onWaited && { onWaited }),
    });
    watchPool(metrics, name, made);
    return made;
  };
  const general = poolOf("general", options.poolSize);
  const hot = poolOf("hot", options.hotPoolSize);
  const countConflict = watchConflicts(metrics);
  const writable = postgresWritable({
    clock,
    connect: () => primary.connect((url) => openAt(url, false, 0)),
    suffix: systemIds(clock).uuid().slice(0, 8),
  });

  const worthPreparing = preparedTexts();
  let flushes = 0;

  const ask = (client: PostgresClient, query: Sql): Promise<Answer> => {
    const { text, values } = renderPostgres(query);
    return client.ask(text, values, values.length > 0 && worthPreparing(text));
  };

  const retryConflicts = conflictRetries(clock, log, { pause, countConflict, note: writable.note });

  const read = async (query: Sql): Promise<Answer> => {
    const client = await general.acquire();
    try {
      return await ask(client, query);
    } catch (error) {
      throw toPostgresTrouble(error);
    } finally {
      general.release(client);
    }
  };

  const store: Store = {
    ...{ engine: "postgres", isShared: true, seams: postgresSeams },
    all: async <R extends object>(query: Sql) => rowsOf<R>(await read(query)),
    one: async <R extends object>(query: Sql) => (await read(query))[0] as R | undefined,
    write: (work) =>
      retryConflicts(async () => {
        const client = await general.acquire();
        try {
          return await transaction(client, ask, work);
        } finally {
          general.release(client);
        }
      }),
    async flush<I, R extends object>(
      flush: { postgres(input: I, seams: typeof postgresSeams): Sql },
      input: I,
    ) {
      flushes++;
      const { text, values } = renderPostgres(flush.postgres(input, postgresSeams));
      return retryConflicts(async () => {
        const client = await hot.acquire();
        try {
          return rowsOf<R>(await client.ask(text, values.slice(), true));
        } finally {
          hot.release(client);
        }
      });
    },
    flushCount: () => flushes,
    ping: writable.ping,
    async now() {
      const [row] = await read({
        strings: ["SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now"],
        values: [],
      });
      return Number(row?.now);
    },
    async close() {
      writable.close();
      general.close();
      hot.close();
      const deadline = clock.elapsed() + poolWaitMsMax;
      while (general.size() + hot.size() > 0 && clock.elapsed() < deadline) await clock.sleep(5);
    },
  };

  watchLockWaiters(metrics, clock, async () => {
    const [row] = await read(lockWaiters(applicationName));
    return Number(row?.count);
  });

  try {
    await requireDurableCommits(general, options);
  } catch (error) {
    await store.close();
    throw error;
  }
  return store;
}

/** Whether a text is prepared: that costs a round trip more, so only what comes again is. */
function preparedTexts(): (text: string) => boolean {
  const timesSeen = new Map<string, number>();
  let prepared = 0;
  return (text) => {
    const times = timesSeen.get(text) ?? 0;
    if (times >= 2) return true;
    if (prepared >= preparedMax) return false;
    if (times === 0 && timesSeen.size > 4 * preparedMax) {
      for (const [known, count] of timesSeen) if (count < 2) timesSeen.delete(known);
    }
    timesSeen.set(text, times + 1);
    if (times + 1 < 2) return false;
    prepared++;
    return true;
  };
}

/** Runs again what the server undid on its own account: a deadlock's victim, a serialization failure. */
function conflictRetries(
  clock: Clock,
  log: Log,
  {
    pause,
    countConflict,
    note,
  }: {
    pause: (failures: number) => number;
    countConflict: (error: unknown) => void;
    note: (error: unknown) => void;
  },
) {
  return async <T>(attempt: () => Promise<T>): Promise<T> => {
    for (let failures = 1; ; failures++) {
      try {
        return await attempt();
      } catch (error) {
        countConflict(error);
        if (!isConflict(error) || failures >= attemptsMax) {
          const trouble = toPostgresTrouble(error);
          note(trouble);
          throw trouble;
        }
        log.debug("store.retry", { failures, error });
        await clock.sleep(pause(failures));
      }
    }
  };
}

async function requireDurableCommits(
  general: { acquire(): Promise<PostgresClient>; release(client: PostgresClient): void },
  options: PostgresOptions,
): Promise<void> {
  const client = await general.acquire();
  general.release(client);
  if (client.synchronousCommit !== "off") return;
  const about = "synchronous_commit is off: a crash of the server may lose writes that were acknowledged";
  if (!options.acceptAsyncCommit) throw new Error(about);
  options.log.warn("store.async_commit", { about });
}

/** BEGIN .. COMMIT around `work`. Whatever fails leaves either a clean connection or a broken one. */
async function transaction<T>(
  client: PostgresClient,
  ask: (client: PostgresClient, query: Sql) => Promise<Answer>,
  work: (session: Session) => Promise<T>,
): Promise<T> {
  let over = false;
  let failed: { error: unknown } | undefined;
  let last: Promise<unknown> | undefined;
  let withCommit: Sql | undefined;
  const begun = client.ask("BEGIN", [], false);
  begun.catch(() => {});

  // One after the other, whatever the caller awaits: the driver's own queue would outlive the connection.
  const inTurn = <T>(askNow: () => Promise<T>, after: Promise<unknown> = Promise.resolve()): Promise<T> => {
    const answer = after.then(async () => {
      if (failed) throw failed.error;
      if (withCommit) throw new Error(afterLast);
      if (over) throw new Error("a session was used after its transaction had ended");
      try {
        return await askNow();
      } catch (error) {
        failed ??= { error };
        throw error;
      }
    });
    last = answer.catch(() => {});
    return answer;
  };
  const statement = (query: Sql) => inTurn(() => ask(client, query), last ?? begun);
  const session: Session = {
    seams: postgresSeams,
    all: <R extends object>(query: Sql) => statement(query).then(rowsOf<R>, rethrow),
    one: (query) => statement(query).then((rows) => rows[0] as never, rethrow),
    run: (query) => statement(query).then((answer) => answer.count ?? 0, rethrow),
    runAll: (queries) =>
      inTurn(() => allOf(queries.map((query) => ask(client, query))), last ?? begun).then(
        (answers) => answers.map(({ count }) => count ?? 0),
        rethrow,
      ),
    // These go with BEGIN: outside a transaction they would be read in vain, and a write committed.
    together: (reads) =>
      inTurn(() => allOf(reads.map((query) => ask(client, query))), last).then(
        (answers) => answers.map(rowsOf<Row>),
        rethrow,
      ),
    last: (query) =>
      inTurn(async () => {
        withCommit = query;
      }, last ?? begun),
  };

  const cut = new Promise<never>((_, reject) => {
    client.onLost = (why) =>
      reject(
        why ??
          new StoreError(
            "unavailable",
            "the connection ended inside a transaction; one that idles is ended so",
          ),
      );
  });
  cut.catch(() => {});
  try {
    const result = await Promise.race([work(session), cut]);
    await begun;
    await last;
    // A statement that failed undoes the transaction on this engine, also when `work` went on regardless.
    if (failed) throw failed.error;
    over = true;
    const lastOne = withCommit && ask(client, withCommit);
    const [answer] = await allOf([client.ask("COMMIT", [], false), ...(lastOne ? [lastOne] : [])]);
    if (answer?.command !== "COMMIT") throw new Error(`the server answered ${answer?.command} to COMMIT`);
    return result;
  } catch (error) {
    over = true;
    await last;
    await begun.catch(() => client.destroy());
    if (client.usable()) await client.ask("ROLLBACK", [], false).catch(() => client.destroy());
    // The driver's own error decides about a retry, not what `work` may have made of it.
    throw failed && isConflict(failed.error) ? failed.error : error;
  } finally {
    client.onLost = undefined;
  }
}

/** All answers once each has come or failed: none is left on the connection. Throws the first failure. */
async function allOf<T>(asked: readonly Promise<T>[]): Promise<T[]> {
  const settled = await Promise.allSettled(asked);
  const refused = settled.find(({ status }) => status === "rejected") as PromiseRejectedResult | undefined;
  if (refused) throw refused.reason;
  return settled.map((one) => (one as PromiseFulfilledResult<T>).value);
}

/** A plain array: the driver's carries the connection and the statement with it. */
const rowsOf = <R extends object>(answer: Answer): R[] => Array.from(answer) as unknown as R[];

function rethrow(error: unknown): never {
  throw toPostgresTrouble(error);
}
