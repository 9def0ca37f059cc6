import { parseArgs } from "node:util";
import { runFolds } from "./folds.ts";

// bun run faults:projections [--long] [--events N] [--kills N] [--seed N]: short without --long.
const { values } = parseArgs({
  options: {
    long: { type: "boolean", default: false },
    events: { type: "string" },
    kills: { type: "string" },
    seed: { type: "string", default: String(Math.floor(Math.random() * 1e9)) },
  },
});
const usual = values.long ? { events: 1_000_000, kills: 10 } : { events: 20_000, kills: 3 };
const startedAt = performance.now();
console.log(`seed ${values.seed}`);
const { breaches, ...figures } = await runFolds({
  events: Number(values.events ?? usual.events),
  kills: Number(values.kills ?? usual.kills),
  seed: values.seed,
  settleMs: 900_000,
  isPatient: values.long,
  say: (line) => console.log(`${Math.round((performance.now() - startedAt) / 1_000)} s ${line}`),
});
console.log(figures);
for (const breach of breaches.slice(0, 50)) console.log(breach);
const seconds = Math.round((performance.now() - startedAt) / 1_000);
console.log(`${breaches.length === 0 ? "sound" : `BROKEN, ${breaches.length} breaches`} after ${seconds} s`);
process.exit(breaches.length === 0 ? 0 : 1);
