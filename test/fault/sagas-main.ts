import { parseArgs } from "node:util";
import { engines } from "../support/engines.ts";
import { chanceOf } from "./faults.ts";
import { allCases, type SagaCase, shuffled, type Victim } from "./saga-points.ts";
import { runSagas } from "./sagas.ts";

// bun run faults:saga [--engine postgres|libsql] [--victim worker|server] [--checkpoint MS] [--only TEXT] [--batch N] [--seed N]
const { values } = parseArgs({
  options: {
    engine: { type: "string" },
    victim: { type: "string" },
    checkpoint: { type: "string" },
    only: { type: "string", default: "" },
    batch: { type: "string", default: "60" },
    seed: { type: "string", default: String(Math.floor(Math.random() * 1e9)) },
  },
});
const startedAt = performance.now();
const size = Number(values.batch);
const chance = chanceOf(Number(values.seed));
const wanted = (one: SagaCase) => `${one.ending} ${one.points.join(" ")}`.includes(values.only);
const batchesOf = (victim: Victim) => {
  const cases = shuffled(allCases(victim).filter(wanted), chance);
  return Array.from({ length: Math.ceil(cases.length / size) }, (_, at) => ({
    victim,
    cases: cases.slice(at * size, (at + 1) * size),
  }));
};
console.log(`seed ${values.seed}`);
let breached = 0;
for (const engine of engines.filter((one) => one === (values.engine ?? one)))
  for (const checkpointMs of values.checkpoint === undefined ? [300, 0] : [Number(values.checkpoint)]) {
    const victims = (["worker", "server"] as const).filter((one) => one === (values.victim ?? one));
    const batches = victims.flatMap(batchesOf);
    const { breaches, ...figures } = await runSagas({
      ...{ engine, batches, checkpointMs, timeoutMs: 8_000, say: console.log },
    });
    console.log(engine, { checkpointMs, ...figures });
    for (const one of breaches) console.log(one);
    breached += breaches.length;
  }
const seconds = Math.round((performance.now() - startedAt) / 1_000);
console.log(`${breached === 0 ? "sound" : `BROKEN, ${breached} breaches`} after ${seconds} s`);
process.exit(breached === 0 ? 0 : 1);
