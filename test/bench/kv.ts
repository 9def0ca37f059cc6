/**
 * `bun run bench:kv [--engine postgres|libsql] [--rounds 3] [--seconds 4]`
 *
 * Puts and gets of keys over HTTP with 64 callers, each beside single-row commits of the same store, taken right before and
 * after; and emits whose event has a schema beside emits whose event has none. Medians over the rounds, and all of them.
 */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { concurrently } from "../cluster/load.ts";
import { startPostgres } from "../support/postgres.ts";
import { callerOf } from "../support/server.ts";
import { driftMax, median } from "./figures.ts";
import { runToEnd, startBench, stopAll } from "./processes.ts";

const { values: given } = parseArgs({
  options: {
    engine: { type: "string" },
    rounds: { type: "string", default: "3" },
    seconds: { type: "string", default: "4" },
  },
});
const rounds = Number(given.rounds);
const seconds = Number(given.seconds);
const floorSeconds = 2;
const callers = 64;
const keys = 5_000;
const emitTarget = 0.85;

const shapes = [
  { name: "puts of 5,000 keys", kv: { method: "PUT", keys }, target: 0.7 },
  { name: "gets of 5,000 keys", kv: { method: "GET", keys }, target: 2 },
] as const;

const governed = {
  type: "object",
  required: ["at", "customer", "total"],
  properties: {
    at: { type: "number" },
    customer: { type: "string", pattern: "^c-[0-9]+$" },
    total: { type: "number", minimum: 0 },
    note: { type: "string", maxLength: 100 },
  },
  additionalProperties: false,
};

type Place = { databaseUrl?: string; file?: string };

const shown = (values: readonly number[], digits: number) =>
  `${median([...values]).toFixed(digits)} (${values.map((value) => value.toFixed(digits)).join(", ")})`;

async function measure(engine: string, floor: Place, databaseUrl?: string): Promise<void> {
  const bench = await startBench(databaseUrl, { alone: true });
  const { rpc, api } = callerOf(
    () => bench.url,
    () => bench.key,
  );
  await api("/api/v1/kv/buckets", { body: { name: "bench" } });
  const schemaJson = JSON.stringify(governed);
  await rpc("EventSchemaService", "RegisterSchema", { eventName: "bench.governed", schemaJson });
  const load = { url: bench.url, key: bench.key, rate: 0, callers, batch: 1, event: "bench.free" };
  await concurrently(keys, callers, async (number) => {
    await api(`/api/v1/kv/buckets/bench/keys/key-${number}`, { method: "PUT", body: number });
  });
  for (const { kv } of shapes) await runToEnd("load.ts", { ...load, kv, seconds: 2 });
  const floorNow = async () => (await runToEnd("floor.ts", { ...floor, seconds: floorSeconds })).perS!;
  const perSOf = async (options: object) => {
    const sent = await runToEnd("load.ts", { ...load, ...options, seconds });
    if (sent.refused! > 0) throw new Error(`${sent.refused} refused`);
    return { perS: sent.accepted! / sent.seconds!, p95: sent.p95! };
  };
  for (const { name, kv, target } of shapes) {
    const found = { perS: [] as number[], floor: [] as number[], ratio: [] as number[], p95: [] as number[] };
    let voids = 0;
    for (let round = 0; round < rounds; round++) {
      const before = await floorNow();
      const { perS, p95 } = await perSOf({ kv });
      const after = await floorNow();
      const floorPerS = (before + after) / 2;
      if (Math.abs(before - after) / floorPerS > driftMax) voids++;
      found.perS.push(perS);
      found.floor.push(floorPerS);
      found.ratio.push(perS / floorPerS);
      found.p95.push(p95);
    }
    console.log(
      `${engine}, ${name}:
  ${shown(found.perS, 0)}/s, floor ${shown(found.floor, 0)}/s, ratio ${shown(found.ratio, 2)} (target >= ${target}), p95 ${shown(found.p95, 1)} ms${voids > 0 ? `; floors of ${voids} rounds differ by more than ${driftMax * 100} %` : ""}`,
    );
  }
  const checked: number[] = [];
  const free: number[] = [];
  for (let round = 0; round < rounds; round++) {
    // Each goes first in turn: what comes later finds a longer log.
    const order = round % 2 === 0 ? [free, checked] : [checked, free];
    for (const perS of order)
      perS.push((await perSOf({ event: perS === checked ? "bench.governed" : "bench.free" })).perS);
  }
  const ratios = checked.map((perS, at) => perS / free[at]!);
  console.log(
    `${engine}, emits under a schema: ${shown(checked, 0)}/s, without ${shown(free, 0)}/s, ratio ${shown(ratios, 2)} (target >= ${emitTarget})`,
  );
  await bench.stop();
}

const wants = (engine: string) => given.engine === undefined || given.engine === engine;
const postgres = wants("postgres") ? await startPostgres() : undefined;
const folder = await mkdtemp(join(tmpdir(), "svc-floor-"));
try {
  if (postgres) {
    const floor = { databaseUrl: await postgres.createDatabase() };
    await measure("postgres", floor, await postgres.createDatabase());
  }
  if (wants("libsql")) await measure("libsql", { file: join(folder, "floor.db") });
} finally {
  await stopAll();
  await postgres?.stop();
  await rm(folder, { recursive: true, force: true });
}
process.exit(0);
