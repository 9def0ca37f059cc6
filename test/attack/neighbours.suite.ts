import { resolve } from "node:path";
import { furnishOrg } from "../support/furnished-org.ts";
import { type EngineName, startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";
import { type Aggressor, aggressors, nameOf, type Place } from "./neighbours-aggressors.ts";
import { type Met, openVictim, type Victim } from "./neighbours-victim.ts";
import type { AttackOptions, AttackResult, AttackSuite } from "./suite.ts";

/**
 * What a victim may meet. A call of its own may have to wait for some bursts and one evaluation of others (a dear one computes for
 * 30 ms on a slow machine, and the collector comes on top), or for a body of four megabytes to be read.
 */
export interface Bounds {
  /** Of what the thread computes while a call of the victim's is on its way. */
  p99Ms: number;
  /** Or so many times what it met in the control. */
  p99Times: number;
  heldMs: number;
  grownMb: number;
  /** Of its slots, in the long form. */
  slotsShare: number;
}

export const bounds: Bounds = { p99Ms: 400, p99Times: 20, heldMs: 400, grownMb: 400, slotsShare: 0.6 };

/** Where something else is allowed, and why. */
const others: Record<string, Partial<Bounds>> = {
  // One event of 1.9 MB is copied for forty sockets in one go by the runtime, before anybody can be cut.
  "viewer x sockets that do not read": { p99Ms: 800, heldMs: 600, grownMb: 500 },
};

const longMs = 20_000;
const shortMs = 700;
const controlMs = 1_000;

/** The program of one aggressor, until the answered function is called. */
async function attack(aggressor: Aggressor, place: Place): Promise<() => Promise<void>> {
  const program = resolve(import.meta.dir, "neighbours-aggressors.ts");
  const child = Bun.spawn(["bun", program, JSON.stringify({ name: nameOf(aggressor), place })], {
    ...{ stdout: "pipe", stderr: "ignore", stdin: "ignore" },
  });
  const reader = child.stdout.getReader();
  await Promise.race([reader.read(), child.exited]);
  if (child.exitCode !== null) throw new Error(`${nameOf(aggressor)} did not begin`);
  return async () => {
    if (child.exitCode !== null) throw new Error(`${nameOf(aggressor)} gave up`);
    child.kill(9);
    await child.exited;
  };
}

function judge(name: string, met: Met, control: Met, long: boolean): string[] {
  const { p99Ms, p99Times, heldMs, grownMb, slotsShare } = { ...bounds, ...others[name] };
  const found: string[] = [];
  const p99Max = Math.max(p99Ms, p99Times * control.p99);
  const say = (what: string, seen: number, most: number) => {
    if (seen > most) found.push(`${name}: ${what} ${seen.toFixed(0)}, at most ${most.toFixed(0)} expected`);
  };
  say("p99 of the victim's calls in ms", met.p99, p99Max);
  say("longest hold of the loop in ms", met.heldMs, heldMs + control.heldMs);
  say("megabytes grown and held", met.grownMb, grownMb + Math.max(0, control.grownMb));
  if (met.refused.length > 0) found.push(`${name}: the victim was refused: ${met.refused.slice(0, 5)}`);
  if (long && met.slots.ran < slotsShare * met.slots.due)
    found.push(`${name}: ${met.slots.ran} of ${met.slots.due} slots of the victim ran`);
  return found;
}

const rowOf = (name: string, { calls, p99, heldMs, grownMb, peakMb, slots }: Met): string =>
  `${name.padEnd(52)} ${String(calls).padStart(5)} calls  p99 ${p99.toFixed(1).padStart(6)} ms  held ${heldMs.toFixed(1).padStart(6)} ms  +${grownMb.toFixed(0).padStart(4)} MB of ${peakMb.toFixed(0).padStart(4)}  slots ${slots.ran}/${slots.due}`;

async function placeOf(server: TestServer): Promise<Place> {
  const { orgId, environmentId } = await furnishOrg(server, "neighbour");
  const keyOf = async (role: string) => {
    const made = { orgId, environmentId, name: role, roleIds: [`role_${role}`] };
    return (await server.running.domain.keys.create(made)).key;
  };
  const keys = {
    admin: await keyOf("admin"),
    developer: await keyOf("developer"),
    viewer: await keyOf("viewer"),
  };
  return { url: server.url, keys };
}

/** What is left of an attack is over before the next one begins. */
async function settle(victim: Victim, control: Met): Promise<void> {
  await until(async () => (await victim.work(100)).p99 < bounds.p99Ms + control.p99, {
    about: "the end of an attack",
    deadlineMs: 20_000,
  });
  Bun.gc(true);
}

export async function attackWith(
  chosen: readonly Aggressor[],
  { long, log, atOnce }: Pick<AttackOptions, "long" | "log"> & { atOnce?: number },
  engine: EngineName,
): Promise<string[]> {
  const server = await startTestServer({ engine, settings: { pollHoldMs: 20 } });
  const breaches: string[] = [];
  try {
    const victim = await openVictim(server);
    const place = { ...(await placeOf(server)), atOnce };
    const control = await victim.work(controlMs);
    log(rowOf(`${engine}: control`, control));
    for (const aggressor of chosen) {
      const stop = await attack(aggressor, place);
      const met = await victim.work(long ? longMs : shortMs);
      await stop();
      log(rowOf(`${engine}: ${nameOf(aggressor)}`, met));
      breaches.push(...judge(nameOf(aggressor), met, control, long).map((one) => `${engine}: ${one}`));
      if (aggressor !== chosen.at(-1)) await settle(victim, control);
    }
  } finally {
    await server.stop();
  }
  return breaches;
}

export const suite: AttackSuite = {
  name: "neighbours",
  about: "An aggressor with each right does its worst at each resource while a victim works.",
  async run(options): Promise<AttackResult> {
    const chosen = aggressors.filter(({ short }) => options.long || short);
    // In the short form the second engine is asked only about what stands between a call and its store.
    const few = chosen.filter(({ resource }) => resource === "triggers");
    const breaches: string[] = [];
    let attempts = 0;
    for (const [at, engine] of options.engines.entries()) {
      const list = options.long || at === 0 ? chosen : few;
      attempts += list.length;
      breaches.push(...(await attackWith(list, options, engine)));
    }
    const size = `${chosen.length} aggressors x ${options.engines.length} engines, ${(options.long ? longMs : shortMs) / 1_000} s each`;
    return { size, attempts, breaches };
  },
};
