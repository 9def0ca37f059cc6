import { connect, type Socket } from "node:net";
import { type ConnectionOptions, checkServerIdentity as checkIdentity, type PeerCertificate } from "node:tls";
import type { Options, PostgresType } from "postgres";
import type { Clock } from "../kit/clock.ts";
import type { Log } from "../kit/log.ts";
import type { Bound } from "../kit/sql.ts";
import type { Pooled } from "./pool.ts";
import { isConnectionLoss, lacksRight, toPostgresTrouble } from "./postgres-errors.ts";
import { StoreError } from "./store.ts";

export interface Limits {
  /** A statement that runs longer is cancelled by the server. */
  statementMs: number;
  /** A lock that is not had within this is given up. */
  lockMs: number;
  /** A transaction that issues nothing for this long is ended together with its connection. */
  idleInTransactionMs: number;
  connectMs: number;
}

/** TLS or nothing: a certificate of this CA (PEM) for the host of the URL. */
export interface DatabaseTls {
  ca: string;
}

export interface PostgresClientOptions {
  url: string;
  clock: Clock;
  log: Log;
  applicationName: string;
  /** Undefined leaves it to the URL's `sslmode`. */
  tls?: DatabaseTls;
  limits: Limits;
  /** For flushes only. */
  hot?: boolean;
  /** Whether this user may set `deadlock_timeout`; asked once, by the first connection. */
  may: { setDeadlockTimeout?: boolean };
  /** What else the session is set to. */
  session?: Readonly<Record<string, string>>;
}

export interface Answer extends Array<Record<string, unknown>> {
  count: number | null;
  command: string;
}

export interface RawAnswer extends Array<(Uint8Array | null)[]> {
  columns?: readonly { name: string; type: number }[];
}

/** One connection, used by one caller at a time. Never mended: a broken one is thrown away and reopened. */
export interface PostgresClient extends Pooled {
  ask(text: string, values: Bound[], prepare: boolean): Promise<Answer>;
  /** The same with cells as the server writes them. */
  askRaw(text: string, values: readonly string[]): Promise<RawAnswer>;
  /** Asks the server to give up what it does for this connection. */
  cancel(): void;
  /** Called once when the connection ends, also while nothing is asked. */
  onLost: ((why?: StoreError) => void) | undefined;
  readonly synchronousCommit: string;
}

/** The server cancels first; this catches one that no longer answers at all. */
const answerGraceMs = 5_000;

const forFlushes = {
  // A flush joins rows of its own batch: nested loops over them are quadratic, merges want tables in order.
  enable_nestloop: "off",
  enable_mergejoin: "off",
  // Its plan is the same for any values; planning it at each call costs a lone caller more than running it.
  plan_cache_mode: "force_generic_plan",
};

const deadlockTimeout = "100ms";
const hello = `SELECT current_setting('synchronous_commit') AS synchronous_commit, current_setting('enable_bitmapscan') AS bitmaps,
  set_config('application_name', $1, false) AS name`;

/** Settings, plans and roles are a session's: a pooler that shares a connection loses or mixes them. */
const pooled = (why: string, cause?: unknown) =>
  new StoreError(
    "unavailable",
    `a pooler stands before PostgreSQL and takes no settings for a session (${why}): name PostgreSQL's own host and port`,
    cause,
  );

const lost = (cause?: unknown) =>
  new StoreError(
    "unavailable",
    `the connection to the database ended${cause ? `: ${(cause as Error).message ?? cause}` : ""}`,
    cause,
  );

/** The driver hands TLS only the socket: there is no name to compare when the host is an address. */
function verified({ ca }: DatabaseTls, url: string): ConnectionOptions {
  const host = new URL(url).hostname.replace(/^\[|\]$/g, "");
  const checkServerIdentity = (_: string, certificate: PeerCertificate) => checkIdentity(host, certificate);
  return { ca, rejectUnauthorized: true, checkServerIdentity };
}

interface DriverTarget {
  host: string[];
  port: number[];
  path?: string | false;
}

/**
 * Sockets of one connection: one to greet the server by, and later those of cancels. The driver would try
 * again at once, and hundreds of times a second, with a server that accepts and then hangs up.
 */
function onlySocket() {
  let opening: Socket | undefined;
  const sockets = {
    isGreeted: false,
    open({ host, port, path }: DriverTarget): Promise<Socket> {
      if (opening && !sockets.isGreeted) return Promise.reject(lost(new Error("the server hung up")));
      const target = { host: host[0]!, port: port[0]! };
      const socket = path ? connect(path) : connect(target);
      opening = socket;
      return new Promise((done, failed) => {
        socket.once("error", failed);
        // The driver tells TLS and its errors whom it speaks to by these.
        socket.once("connect", () => done(Object.assign(socket.off("error", failed), target)));
      });
    },
    /** One that never connected: the driver does not know of it yet. */
    giveUp() {
      if (opening?.connecting) opening.destroy();
    },
  };
  return sockets;
}

export async function openClient(options: PostgresClientOptions): Promise<PostgresClient> {
  const { clock, limits, may } = options;
  // A store in a file has no use for it.
  const { default: postgres } = await import("postgres");
  let broken = false;
  let brokenBy: StoreError | undefined;
  let cancelAsked: (() => void) | undefined;
  const sockets = onlySocket();
  const client: PostgresClient = {
    usable: () => !broken,
    destroy(why) {
      if (broken) return;
      broken = true;
      brokenBy = why;
      sql.end({ timeout: 0 }).catch(() => {});
      sockets.giveUp();
      client.onLost?.(why);
    },
    async ask(text, values, prepare) {
      if (broken) throw brokenBy ?? lost();
      const answerMs = limits.statementMs === 0 ? 0 : limits.statementMs + answerGraceMs;
      const cancel = answerMs > 0 ? clock.after(answerMs, () => client.destroy()) : undefined;
      try {
        return (await sql.unsafe(text, values as never[], { prepare })) as unknown as Answer;
      } catch (error) {
        // Before anyone asks this connection again: the driver would leave that question without an answer.
        if (isConnectionLoss(error)) client.destroy();
        throw brokenBy ?? error;
      } finally {
        cancel?.();
      }
    },
    async askRaw(text, values) {
      if (broken) throw brokenBy ?? lost();
      const query = sql.unsafe(text, values as never[], { prepare: false }).raw();
      cancelAsked = () => query.cancel();
      try {
        return (await query) as unknown as RawAnswer;
      } catch (error) {
        if (isConnectionLoss(error)) client.destroy();
        throw brokenBy ?? error;
      } finally {
        cancelAsked = undefined;
      }
    },
    cancel: () => cancelAsked?.(),
    onLost: undefined,
    synchronousCommit: "on",
  };
  const session: Record<string, string> = {
    // Statistics of a table that was empty a moment ago favour a scan, and are believed when that is wrong.
    enable_seqscan: "off",
    // The first rows of an index are wanted: a bitmap has all matches; a claim of 32 read every queued run.
    enable_bitmapscan: "off",
    ...(options.hot && forFlushes),
    ...options.session,
  };
  const sql = postgres(options.url, {
    max: 1,
    socket: sockets.open,
    no_subscribe: true,
    // Arrays travel as text that PostgreSQL parses, so the driver needs not know their types.
    fetch_types: false,
    connect_timeout: Math.ceil(limits.connectMs / 1000),
    idle_timeout: 0,
    // The driver would end a connection of a certain age between two statements of one transaction.
    max_lifetime: null,
    keep_alive: 5,
    onnotice: (notice) => options.log.debug("store.notice", { code: notice.code, message: notice.message }),
    onclose: () => client.destroy(),
    types: {
      wholeNumber: { to: 20, from: [20, 1700], parse: Number, serialize: String },
    },
    ...(options.tls !== undefined && { ssl: verified(options.tls, options.url) }),
    connection: {
      application_name: options.applicationName,
      statement_timeout: limits.statementMs,
      lock_timeout: limits.lockMs,
      idle_in_transaction_session_timeout: limits.idleInTransactionMs,
      tcp_keepalives_idle: 5,
      tcp_keepalives_interval: 5,
      tcp_keepalives_count: 3,
      default_transaction_isolation: "read committed",
      // Compiling a plan costs more than any of our statements takes.
      jit: "off",
      ...session,
    },
  } as Options<Record<string, PostgresType>>);

  // A host may take packets and answer none.
  const cancel = clock.after(limits.connectMs, () => client.destroy());
  try {
    const [row] = await client.ask(hello, [options.applicationName], false);
    sockets.isGreeted = true;
    // PgBouncer may be configured to ignore settings.
    if (row?.bitmaps !== session.enable_bitmapscan) throw pooled("they are not in force");
    if (may.setDeadlockTimeout !== false) may.setDeadlockTimeout = await lowerDeadlockTimeout(client);
    return Object.assign(client, { synchronousCommit: String(row?.synchronous_commit) });
  } catch (error) {
    client.destroy();
    if (/unsupported startup parameter/.test(String((error as Error).message)))
      throw pooled((error as Error).message, error);
    const trouble = toPostgresTrouble(error);
    throw trouble instanceof StoreError && trouble.trouble !== "other"
      ? trouble
      : new StoreError("unavailable", `the database refuses: ${(error as Error).message}`, error);
  } finally {
    cancel();
  }
}

async function lowerDeadlockTimeout(client: PostgresClient): Promise<boolean> {
  try {
    await client.ask(`SET deadlock_timeout = '${deadlockTimeout}'`, [], false);
    return true;
  } catch (error) {
    if (lacksRight(error)) return false;
    throw error;
  }
}
