import { backoff } from "../kit/backoff.ts";
import type { Clock } from "../kit/clock.ts";
import { readDatabaseUrl } from "../kit/database-url.ts";
import { systemIds } from "../kit/ids.ts";
import type { Log } from "../kit/log.ts";
import { type DatabaseTls, openClient, type PostgresClient } from "./postgres-client.ts";
import { mayNotAsk, refusesLogin } from "./postgres-errors.ts";
import { Lineage, type PrimaryServer } from "./postgres-lineage.ts";
import { NotWritable, StoreError } from "./store.ts";

/** Between attempts while none succeeds: long enough to be no storm, short enough to notice a promotion. */
const pauseMs = { minMs: 50, maxMs: 400 };

/**
 * Connections of a whole process in an outage: one attempt at a time, each after a longer pause; callers that
 * come meanwhile get at once why the last one failed. While attempts succeed it lets all through.
 */
export class ConnectGate {
  readonly #clock: Pick<Clock, "elapsed">;
  readonly #pause: (failures: number) => number;
  #failures = 0;
  #openAt = 0;
  #isTrying = false;
  #last: unknown;

  constructor(clock: Pick<Clock, "elapsed">, chance: () => number) {
    this.#clock = clock;
    this.#pause = backoff({ ...pauseMs, chance });
  }

  async through<T>(attempt: () => Promise<T>, isOutage: (error: unknown) => boolean): Promise<T> {
    const isTrial = this.#failures > 0;
    if (isTrial) {
      if (this.#isTrying || this.#clock.elapsed() < this.#openAt) throw this.#last;
      this.#isTrying = true;
    }
    try {
      const done = await attempt();
      this.#failures = 0;
      return done;
    } catch (error) {
      // Of many that failed at once the first counts.
      if (isOutage(error)) {
        if (isTrial || this.#failures === 0) {
          this.#failures++;
          this.#openAt = this.#clock.elapsed() + this.#pause(this.#failures);
        }
        this.#last = error;
      }
      throw error;
    } finally {
      if (isTrial) this.#isTrying = false;
    }
  }
}

/** Once one host can be written, the others have this long to show a newer timeline. */
const othersMs = 500;

type Open = (url: string) => Promise<PostgresClient>;

interface FoundHost {
  place: number;
  client: PostgresClient;
  /** Undefined where the server does not say, as some services do. */
  server: PrimaryServer | undefined;
}

const identity = `SELECT pg_is_in_recovery() AS standby, current_database() AS database, system_identifier::text AS system,
  CASE WHEN NOT pg_is_in_recovery() THEN pg_walfile_name(pg_current_wal_lsn()) END AS wal FROM pg_control_system()`;
const withoutIdentity = "SELECT pg_is_in_recovery() AS standby";

/** Of connections that only ask a server who it is. */
const lookLimits = { statementMs: 1_000, lockMs: 1_000, idleInTransactionMs: 1_000, connectMs: 1_000 };

/** How a node finds the one writable server among the hosts of its URL and all that their names lead to. */
export class Primary {
  readonly lineage = new Lineage();
  readonly #urls: readonly string[];
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #gate: ConnectGate;
  /** The last connection that was admitted, and the host that it leads to. */
  #latest: { place: number; client: PostgresClient } | undefined;
  #isUnknownTold = false;
  /** Connections that were tried since the start. */
  attempts = 0;

  constructor({ url, clock, log }: { url: string; clock: Clock; log: Log }) {
    const read = readDatabaseUrl(url);
    if (!read.ok) throw new Error(`the database URL is not usable: ${read.flaw}`);
    this.#urls = read.urls;
    this.#clock = clock;
    this.#log = log;
    this.#gate = new ConnectGate(clock, systemIds(clock).chance);
  }

  /** A connection to the newest writable server; throws StoreError `unavailable` when there is none. */
  connect(open: Open, { isOwnRole = true } = {}): Promise<PostgresClient> {
    return this.#gate.through(
      () => this.#choose(open),
      (error) => isOwnRole || !refusesLogin(error),
    );
  }

  /** Asks the hosts that are not in use whether one of them was promoted meanwhile. */
  async lookAround(tls?: DatabaseTls): Promise<void> {
    const open = (url: string) =>
      openClient({
        ...{ url, clock: this.#clock, log: this.#log, applicationName: "svc look", limits: lookLimits },
        ...{ may: { setDeadlockTimeout: false }, ...(tls && { tls }) },
      });
    const used = this.#latest?.place;
    const others = this.#urls.map((_, place) => place).filter((place) => place !== used);
    if (used === undefined) return;
    await Promise.all(
      others.map(async (place) => {
        const found = await this.#try(place, open).catch(() => undefined);
        found?.client.destroy();
        if (found?.server) this.lineage.heard(found.server);
      }),
    );
  }

  async #choose(open: Open): Promise<PostgresClient> {
    // While one connection lives, its host is the primary as far as this node can know.
    if (this.#latest?.client.usable() || this.#urls.length === 1) {
      const place = this.#latest?.place ?? 0;
      try {
        return this.#admit(await this.#try(place, open));
      } catch (error) {
        if (this.#urls.length === 1) throw error;
      }
    }
    return this.#admit(await this.#newest(open));
  }

  async #newest(open: Open): Promise<FoundHost> {
    const found: FoundHost[] = [];
    const errors: unknown[] = [];
    let isChosen = false;
    const tries = this.#urls.map(async (_, place) => {
      try {
        const one = await this.#try(place, open);
        if (isChosen) return one.client.destroy();
        found.push(one);
      } catch (error) {
        errors.push(error);
        throw error;
      }
    });
    const all = Promise.allSettled(tries);
    const waited = new AbortController();
    await Promise.any(tries).then(
      () => Promise.race([all, this.#clock.sleep(othersMs, waited.signal)]),
      () => all,
    );
    waited.abort();
    isChosen = true;
    found.sort((a, b) => (b.server?.timeline ?? 0) - (a.server?.timeline ?? 0) || a.place - b.place);
    const [best, ...others] = found;
    for (const { client } of others) client.destroy();
    if (best) return best;
    throw noneOf(errors);
  }

  #admit({ place, client, server }: FoundHost): PostgresClient {
    try {
      if (server) this.lineage.admit(client, server);
    } catch (error) {
      client.destroy();
      throw error;
    }
    this.#latest = { place, client };
    return client;
  }

  async #try(place: number, open: Open): Promise<FoundHost> {
    this.attempts++;
    const client = await open(this.#urls[place]!);
    try {
      return { place, client, server: await this.#serverOf(client) };
    } catch (error) {
      client.destroy();
      throw error;
    }
  }

  async #serverOf(client: PostgresClient): Promise<PrimaryServer | undefined> {
    const [row] = await client.ask(identity, [], false).catch((error) => {
      if (!mayNotAsk(error)) throw new StoreError("unavailable", "the server does not say who it is", error);
      if (!this.#isUnknownTold) this.#log.warn("store.server_unknown", { error });
      this.#isUnknownTold = true;
      return client.ask(withoutIdentity, [], false);
    });
    if (row?.standby) throw new NotWritable("the database only reads: it is a standby", "in recovery");
    if (row?.wal === undefined) return undefined;
    const timeline = Number.parseInt(String(row.wal).slice(0, 8), 16);
    return { system: String(row.system), database: String(row.database), timeline };
  }
}

/** Why no host can be written: what a server said of itself says more than one that does not answer. */
function noneOf(errors: readonly unknown[]): unknown {
  const telling = errors.find((error) => error instanceof NotWritable) ?? errors[0];
  const reasons = errors.map((error) =>
    error instanceof StoreError ? error.detail : (error as Error).message,
  );
  if (telling instanceof NotWritable) return new NotWritable(telling.reason, reasons.join("; "));
  return new StoreError("unavailable", `none of the hosts can be written: ${reasons.join("; ")}`, telling);
}
