import { parseArgs } from "node:util";
import { runKeys } from "./keys.ts";

// bun run faults:kv [--long] [--watchers N] [--puts N] [--seed N]: short without --long.
const { values } = parseArgs({
  options: {
    long: { type: "boolean", default: false },
    watchers: { type: "string" },
    puts: { type: "string" },
    seed: { type: "string", default: String(Math.floor(Math.random() * 1e9)) },
  },
});
const usual = values.long ? { watchers: 1_000, puts: 8_000 } : { watchers: 30, puts: 300 };
const startedAt = performance.now();
console.log(`seed ${values.seed}`);
const { breaches, ...figures } = await runKeys({
  watchers: Number(values.watchers ?? usual.watchers),
  puts: Number(values.puts ?? usual.puts),
  seed: Number(values.seed),
  harm: values.long ? "long" : "short",
  say: console.log,
});
console.log(figures);
for (const breach of breaches.slice(0, 50)) console.log(breach);
const seconds = Math.round((performance.now() - startedAt) / 1_000);
console.log(`${breaches.length === 0 ? "sound" : `BROKEN, ${breaches.length} breaches`} after ${seconds} s`);
process.exit(breaches.length === 0 ? 0 : 1);
