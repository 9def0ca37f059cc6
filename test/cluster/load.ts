import { roleIdOf } from "../../src/gate/actions.ts";
import { systemClock } from "../../src/kit/clock.ts";
import { silentLog } from "../../src/kit/log.ts";
import { type Sql, sql } from "../../src/kit/sql.ts";
import { openStore } from "../../src/store/open.ts";
import type { Store } from "../../src/store/store.ts";
import type { AckedEmit } from "../support/checkers.ts";
import { type Answer, callerOf, type Home, startTestServer, type TestServer } from "../support/server.ts";

export const clock = systemClock();

/** An environment with a key of its own. */
export interface Tenant {
  environmentId: string;
  key: string;
}

/** `count` environments in the default org, made by the services of a server. */
export async function makeTenants(server: TestServer, count: number, name = "tenant"): Promise<Tenant[]> {
  const { tenancy, keys } = server.running.domain;
  const orgId = "org_default";
  const roleIds = [roleIdOf("admin")];
  const tenants: Tenant[] = [];
  for (let number = 1; number <= count; number++) {
    const { id } = await tenancy.createEnvironment({ orgId, name: `${name}-${number}` });
    const { key } = await keys.create({ orgId, environmentId: id, name: `${name} ${number}`, roleIds });
    tenants.push({ environmentId: id, key });
  }
  return tenants;
}

/** The same through a server that lives only as long as that takes. */
export async function tenantsIn(home: Home, count: number): Promise<Tenant[]> {
  const server = await startTestServer({ engine: "postgres", home });
  try {
    return await makeTenants(server, count);
  } finally {
    await server.stop();
  }
}

/**
 * The store of a home with the settings it ships with, but that a pause of this process ends no transaction; on libSQL only
 * while no server has the file.
 */
export const storeOf = ({ place }: Home): Promise<Store> =>
  openStore({
    ...{ clock, log: silentLog, databaseUrl: place.databaseUrl, file: place.db, poolSize: 4 },
    limits: { idleInTransactionMs: 60_000 },
  });

/** A store over a server's database for transactions that a pause of this process shall not end; `close` leaves the server its own. */
export async function storeBeside(server: TestServer): Promise<Store> {
  const { store } = server.running.domain;
  // A file's one writer is the server's, whose statements wait for nothing.
  return store.engine === "libsql" ? { ...store, close: async () => {} } : storeOf(server.home);
}

/** Holds what a query selects or changes in a transaction begun now, never idle; answers how to end it. */
export async function holdIn(store: Store, rows: Sql): Promise<() => Promise<void>> {
  let over = false;
  let held = () => {};
  const isHeld = new Promise<void>((done) => {
    held = done;
  });
  const holding = store.write(async (session) => {
    await session.all(rows);
    held();
    while (!over) await session.all(sql`SELECT 1 FROM pg_sleep(0.1)`);
  });
  // Should it end by itself, whoever holds it hears so in the end.
  holding.catch(() => {});
  await Promise.race([isHeld, holding]);
  return async () => {
    over = true;
    await holding;
  };
}

export interface Emission {
  event: string;
  data?: unknown;
  idempotencyKey?: string;
  delayMs?: number;
}

/** An answer that was not 2xx, or none at all. */
export interface Refusal {
  status: number;
  code: string | undefined;
  retryAfter: string | null;
  text: string;
}

export interface EmitOptions {
  /** Asked anew for every try: a server may come back elsewhere. */
  url: () => string;
  tenant: Tenant;
  onRefusal?: (refusal: Refusal) => void;
  /** Tries before the emission is given up as a failure of the test. */
  triesMax?: number;
}

/** Emits until it is acked, as a client with a retry loop would; an emission that is tried twice needs a key. */
export async function emitUntilAcked(emission: Emission, options: EmitOptions): Promise<AckedEmit> {
  const { tenant, onRefusal, triesMax = 1_000 } = options;
  const { rpc } = callerOf(options.url, () => tenant.key);
  for (let tries = 1; ; tries++) {
    const answer = await rpc("SvcService", "Emit", emission).catch((error: unknown) => String(error));
    if (typeof answer !== "string" && answer.status === 200) return ackOf(tenant, emission, answer);
    const refusal: Refusal =
      typeof answer === "string"
        ? { status: 0, code: undefined, retryAfter: null, text: answer }
        : {
            status: answer.status,
            code: answer.body?.code,
            retryAfter: answer.headers.get("retry-after"),
            text: JSON.stringify(answer.body),
          };
    onRefusal?.(refusal);
    if (tries >= triesMax || (emission.idempotencyKey === undefined && refusal.status !== 503))
      throw new Error(`not acked after ${tries} tries: ${refusal.status} ${refusal.text}`);
    await Bun.sleep(50);
  }
}

function ackOf(tenant: Tenant, emission: Emission, { body }: Answer): AckedEmit {
  return {
    environmentId: tenant.environmentId,
    eventId: body.eventId,
    runIds: body.runIds ?? [],
    position: Number(body.sequence),
    ...(emission.idempotencyKey !== undefined && { idempotencyKey: emission.idempotencyKey }),
  };
}

/** Runs `work` for 0 to `count - 1`, `callers` at a time. */
export async function concurrently(
  count: number,
  callers: number,
  work: (number: number) => Promise<void>,
): Promise<void> {
  let next = 0;
  const caller = async () => {
    while (next < count) await work(next++);
  };
  await Promise.all(Array.from({ length: Math.min(callers, count) }, caller));
}
