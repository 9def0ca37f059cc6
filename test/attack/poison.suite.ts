import { combineLaneOf } from "../../src/kit/flush-queue.ts";
import { chanceOf } from "../support/chance.ts";
import { type EngineName, startTestServer, type TestServer } from "../support/server.ts";
import { codesOf, poisonOf, poisonTables } from "./poison-triggers.ts";
import { rawDrafts, type Tenant, type Way, ways } from "./poison-ways.ts";
import type { AttackOptions, AttackResult, AttackSuite } from "./suite.ts";

const itemsCount = 40;
const tenantsCount = 3;

interface Attempt {
  what: string;
  /** Statuses in order; the bad one's place. */
  statuses: number[];
  badAt: number;
  /** Where the engine may take what another refuses. */
  mayPass: boolean;
}

/** Sentences of what the neighbours of the bad item suffered, and of a bad one that was taken. */
function breachesOf({ what, statuses, badAt, mayPass }: Attempt): string[] {
  const failed = statuses.filter((status, at) => at !== badAt && status !== 200);
  const said: string[] = [];
  if (failed.length > 0)
    said.push(
      `${what}: ${failed.length} of ${itemsCount - 1} neighbours failed (${[...new Set(failed)].join(", ")})`,
    );
  if (!mayPass && statuses[badAt] === 200) said.push(`${what}: the bad item was taken`);
  return said;
}

/** Environments of tenants whose items meet in one lane, and so in one flush. */
async function tenantsOf(server: TestServer): Promise<Tenant[]> {
  const { tenancy, keys } = server.running.domain;
  const tenants: Tenant[] = [{ env: server.env, key: server.adminKey }];
  const lane = combineLaneOf(server.env);
  for (let made = 0; tenants.length < tenantsCount; made++) {
    const orgId = `org_poison${made}`;
    const { id: env } = await tenancy.createEnvironment({ orgId, name: `poison${made}` });
    if (combineLaneOf(env) !== lane) continue;
    const scope = { orgId, environmentId: env, name: "poison", roleIds: ["role_admin"] };
    tenants.push({ env, key: (await keys.create(scope)).key });
  }
  return tenants;
}

interface Stage {
  server: TestServer;
  tenants: readonly Tenant[];
  badAt: () => number;
}

async function tryWay(
  { server, tenants, badAt }: Stage,
  way: Way,
  code: string,
  engine: EngineName,
): Promise<Attempt> {
  const bad = badAt();
  const sends = await Promise.all(
    Array.from({ length: itemsCount }, (_, at) =>
      way.prepare(server, {
        at,
        tenant: tenants[at % tenantsCount]!,
        poison: at === bad ? poisonOf(way.table, code) : undefined,
      }),
    ),
  );
  const statuses = await Promise.all(sends.map((send) => send()));
  return { what: `${way.name} with ${way.table} ${code} on ${engine}`, statuses, badAt: bad, mayPass: false };
}

async function tryRaw({ server, tenants, badAt }: Stage, name: string, engine: EngineName): Promise<Attempt> {
  const bad = badAt();
  const draft = {
    name: "poison.raw",
    version: 1,
    data: "{}",
    value: {},
    metadata: null,
    metadataValue: null,
  };
  const { events } = server.running.domain;
  const statuses = await Promise.all(
    Array.from({ length: itemsCount }, (_, at) => {
      const good = { ...draft, idempotencyKey: null };
      // Not spread: what it throws is to be thrown where the item is prepared.
      const mine =
        at === bad
          ? Object.defineProperties({ ...good }, Object.getOwnPropertyDescriptors(rawDrafts[name]!(bad)))
          : good;
      const origin = { environmentId: tenants[at % tenantsCount]!.env, source: "api", runId: undefined };
      return events.emit([mine], origin).then(
        () => 200,
        () => 500,
      );
    }),
  );
  return { what: `${name} past the doors on ${engine}`, statuses, badAt: bad, mayPass: true };
}

/** Whose errors are raised, and by which ways; all of them unless it says otherwise. */
export interface PoisonOptions extends AttackOptions {
  codes?: readonly string[];
  only?: readonly string[];
}

export async function runPoison(options: PoisonOptions): Promise<AttackResult> {
  const breaches: string[] = [];
  let attempts = 0;
  for (const engine of options.engines) {
    const chance = chanceOf(`${options.seed}`);
    const server = await startTestServer({ engine, settings: { pollHoldMs: 0 } });
    try {
      await poisonTables(server.running.domain.store);
      const tenants = await tenantsOf(server);
      const stage = { server, tenants, badAt: () => chance.between(0, itemsCount - 1) };
      const take = (attempt: Attempt) => {
        attempts++;
        breaches.push(...breachesOf(attempt));
      };
      const all = options.codes ?? codesOf[engine];
      for (const [place, way] of ways.entries()) {
        if (options.only && !options.only.includes(way.name)) continue;
        for (const tenant of tenants) await way.open?.(server, tenant);
        // In short every way meets some of the errors, and every error some of the ways.
        const codes = options.long || options.codes ? all : all.filter((_, at) => at % 6 === place % 6);
        for (const code of codes) {
          take(await tryWay(stage, way, code, engine));
          await way.close?.();
        }
        options.log(`${engine}: ${way.name} with ${codes.length} errors`);
      }
      if (options.only === undefined)
        for (const name of Object.keys(rawDrafts)) take(await tryRaw(stage, name, engine));
    } finally {
      await server.stop();
    }
  }
  const size = `${ways.length} ways x ${codesOf.postgres.length} + ${codesOf.libsql.length} errors, and ${Object.keys(rawDrafts).length} raw drafts, each among ${itemsCount - 1} good ones of ${tenantsCount} tenants`;
  return { size, attempts, breaches };
}

export const suite: AttackSuite = {
  name: "poison",
  about: "one item that the database refuses, among those of other tenants that share its flush",
  run: runPoison,
};
