import { parseArgs } from "node:util";
import { engines } from "../support/engines.ts";
import { runHooksIn } from "./hooks-in.ts";
import { runHooksOut } from "./hooks-out.ts";

// bun run faults:webhooks [--long] [--engine postgres|libsql] [--way in|out] [--deliveries N] [--kills N] [--seed N]
const { values } = parseArgs({
  options: {
    long: { type: "boolean", default: false },
    engine: { type: "string" },
    way: { type: "string" },
    deliveries: { type: "string" },
    kills: { type: "string" },
    seed: { type: "string", default: String(Math.floor(Math.random() * 1e9)) },
  },
});
const { long, seed } = values;
const startedAt = performance.now();
const say = (line: string) => console.log(`${Math.round((performance.now() - startedAt) / 1_000)} s ${line}`);
const isWanted = (way: string) => values.way === undefined || values.way === way;
let broken = 0;
const report = (about: string, { breaches, ...figures }: { breaches: string[] }) => {
  broken += breaches.length;
  console.log(about, breaches.length === 0 ? "sound" : "BROKEN", figures);
  for (const breach of breaches.slice(0, 50)) console.log(breach);
};

console.log(`seed ${seed}`);
for (const engine of engines) {
  if (values.engine !== undefined && values.engine !== engine) continue;
  const kills = Number(values.kills ?? (long ? 4 : 2));
  const deliveries = Number(values.deliveries ?? (long ? 100_000 : 3_000));
  if (isWanted("in"))
    report(`${engine}, webhooks in:`, await runHooksIn({ engine, deliveries, kills, seed, say }));
  const [events, failsMs] = long ? [5_000, 60_000] : [300, 3_000];
  if (isWanted("out"))
    report(`${engine}, webhooks out:`, await runHooksOut({ engine, events, failsMs, kills, say }));
}
console.log(broken === 0 ? "sound" : `BROKEN, ${broken} breaches`);
process.exit(broken === 0 ? 0 : 1);
