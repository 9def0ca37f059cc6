import type { Operation } from "../../src/kit/operation.ts";
import { freePort } from "../support/process.ts";
import { type EngineName, startTestServer, type TestServer } from "../support/server.ts";
import { configDoors } from "./doors-config.ts";
import { entityDoors } from "./doors-entities.ts";
import { type DoorIn, emittingDoors, metadataDoors, reportDoors, steeringDoors } from "./doors-in.ts";
import { readEverywhere } from "./doors-out.ts";
import { stateDoors } from "./doors-projections.ts";
import { untried } from "./doors-registry.ts";
import { schemaDoors } from "./doors-schemas.ts";
import { pushDoor, streamDoors } from "./doors-streams.ts";
import { canonical, type Probe, probesOf } from "./doors-values.ts";
import { webhookDoors } from "./doors-webhooks.ts";
import type { AttackOptions, AttackResult, AttackSuite } from "./suite.ts";

/** Numbers in [0, 1), the same for the same seed. */
function chanceOf(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 2 ** 32;
  };
}

export interface Sabotage {
  operations?: readonly Operation[];
  meddle?: (server: TestServer, ids: { eventIds: string[]; runIds: string[] }) => Promise<void>;
}

/** In its short form each door is tried with one value of so many, another one for each. */
const shortShare = 7;

const shareOf = (probes: readonly Probe[], door: number, share: number) =>
  probes.filter((_, at) => (at + door) % share === 0);

async function tryDoor(door: DoorIn, probe: Probe, breaches: string[]): Promise<void> {
  const what = `${probe.name.slice(0, 80)} through ${door.name}`;
  try {
    const stored = await door.put(probe);
    if (stored === undefined) {
      if (probe.fits) breaches.push(`${what}: to be taken, was refused`);
    } else if (!probe.fits) breaches.push(`${what}: to be refused, was stored as ${stored.slice(0, 80)}`);
    else if (canonical(JSON.parse(stored)) !== canonical(JSON.parse(probe.text)))
      breaches.push(`${what}: stored as ${stored.slice(0, 80)}`);
  } catch (error) {
    breaches.push(`${what}: to be equal or refused, was ${String(error).slice(0, 200)}`);
  }
}

export async function tryDoors(
  engine: EngineName,
  options: AttackOptions,
  sabotage: Sabotage = {},
): Promise<{ attempts: number; size: string; breaches: string[] }> {
  const breaches: string[] = [];
  const settings = { pollHoldMs: 250, leaseMs: 120_000, pushAllowPrivate: "all" as const, grpcPort: 0 };
  const logged: string[] = [];
  const log = { debug() {}, info() {}, warn() {}, error: (what: string) => void logged.push(what) };
  const server = await startTestServer({
    engine,
    log: log as never,
    settings: { ...settings, grpcPort: await freePort() },
    ...(sabotage.operations && { operations: sabotage.operations }),
  });
  let attempts = 0;
  try {
    breaches.push(...untried(server.running.registry));
    const probes = probesOf(chanceOf(options.seed), options.long);
    await server.rpc("SvcService", "RegisterFunction", { id: "door.sink" });
    const streams = await streamDoors(server);
    const push = await pushDoor(server);
    const steered = await steeringDoors(server);
    const doors = [
      ...emittingDoors(server),
      ...metadataDoors(server),
      ...entityDoors(server),
      ...configDoors(server),
      ...(await schemaDoors(server)),
      ...(await stateDoors(server)),
      ...(await webhookDoors(server)),
      ...steered,
      ...(await reportDoors(server, options.long ? probes.length : Math.ceil(probes.length / shortShare))),
      ...streams.doors,
      push.door,
    ];
    const tryAll = async (door: DoorIn, at: number) => {
      const share = options.long ? probes : shareOf(probes, at, shortShare);
      for (const probe of share) {
        if (!door.takes(probe)) continue;
        attempts++;
        await tryDoor(door, probe, breaches);
      }
    };
    // Those that write into one step go one after the other.
    const apart = doors.filter((door) => !steered.includes(door));
    // For the proof that breaches are found, the doors out are enough.
    if (!sabotage.meddle)
      await Promise.all([
        ...apart.map(tryAll),
        (async () => {
          for (const [at, door] of steered.entries()) await tryAll(door, at);
        })(),
      ]);
    breaches.push(...streams.cut().map((name) => `the worker's stream over ${name} was cut`));
    streams.close();
    push.close();

    const fitting = probes.filter(({ fits }) => fits);
    const given = await readEverywhere(server, fitting, async (ids) => sabotage.meddle?.(server, ids));
    for (const [door, values] of given)
      for (const [at, { name, text }] of fitting.entries()) {
        attempts++;
        const wanted = canonical(JSON.parse(text));
        const seen = values[at] === undefined ? "nothing" : canonical(values[at]);
        if (seen !== wanted) breaches.push(`${name.slice(0, 80)} at ${door}: ${seen.slice(0, 100)}`);
      }
    if (logged.length > 0) breaches.push(`the server logged errors: ${[...new Set(logged)].join(", ")}`);
    const size = `${probes.length} values, ${doors.length} doors in, ${given.size} doors out`;
    return { attempts, size, breaches };
  } finally {
    await server.stop();
  }
}

export const suite: AttackSuite = {
  name: "doors",
  about: "Values at and beyond every limit through every door in, read at every door out: equal or refused.",
  async run(options): Promise<AttackResult> {
    const sum: AttackResult = { size: "", attempts: 0, breaches: [] };
    for (const engine of options.engines) {
      const { attempts, size, breaches } = await tryDoors(engine, options);
      options.log(`${engine}: ${attempts} attempts, ${breaches.length} got through`);
      sum.attempts += attempts;
      sum.size = `${size}, ${options.engines.length} engines`;
      sum.breaches.push(...breaches.map((breach) => `${engine}: ${breach}`));
    }
    return sum;
  },
};
