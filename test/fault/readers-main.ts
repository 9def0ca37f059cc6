import { parseArgs } from "node:util";
import { type ReaderPlant, readerPlants } from "./reader-plants.ts";
import { runReaders } from "./readers.ts";

// bun run faults:readers [--long] [--events N] [--topics N] [--readers N] [--seed N] [--plant name]: short without --long.
const { values } = parseArgs({
  options: {
    long: { type: "boolean", default: false },
    events: { type: "string" },
    topics: { type: "string" },
    readers: { type: "string", default: "50" },
    seed: { type: "string", default: String(Math.floor(Math.random() * 1e9)) },
    plant: { type: "string", multiple: true, default: [] },
  },
});
const plants = values.plant.filter((name): name is ReaderPlant => Object.hasOwn(readerPlants, name));
if (plants.length < values.plant.length) throw new Error(`plants: ${Object.keys(readerPlants)}`);
const usual = values.long ? { events: 20_000, topics: 5_000 } : { events: 1_600, topics: 400 };
const startedAt = performance.now();
console.log(`seed ${values.seed}`);
const outcome = await runReaders({
  events: Number(values.events ?? usual.events),
  topics: Number(values.topics ?? usual.topics),
  readers: Number(values.readers),
  seed: Number(values.seed),
  harm: values.long ? "long" : "short",
  plants,
  say: console.log,
});
const { breaches, groups, ...figures } = outcome;
console.log(figures);
console.table(groups);
for (const breach of breaches.slice(0, 50)) console.log(breach);
const seconds = Math.round((performance.now() - startedAt) / 1_000);
console.log(`${breaches.length === 0 ? "sound" : `BROKEN, ${breaches.length} breaches`} after ${seconds} s`);
process.exit(breaches.length === 0 ? 0 : 1);
