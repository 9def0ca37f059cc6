import { parseArgs } from "node:util";
import { plants } from "./plants.ts";
import { everything, simulate } from "./world.ts";

const usage = `bun run simulate [--seeds N] [--from S] [--seed S --verbose] [--plant ${Object.keys(plants).join("|")}]
Lives through N worlds, each made of one seed; a failing seed is printed and replays exactly with --seed.`;

const { values } = parseArgs({
  options: {
    seeds: { type: "string", default: "200" },
    from: { type: "string", default: "1" },
    seed: { type: "string" },
    plant: { type: "string" },
    verbose: { type: "boolean", default: false },
    help: { type: "boolean", default: false },
  },
});

if (values.help) {
  console.log(usage);
  process.exit(0);
}
const plant = values.plant === undefined ? undefined : plants[values.plant];
if (values.plant !== undefined && !plant) throw new Error(`no plant ${values.plant}\n${usage}`);
const say = values.verbose ? (line: string) => console.log(line) : undefined;

const first = Number(values.from);
const seeds = values.seed
  ? [values.seed]
  : Array.from({ length: Number(values.seeds) }, (_, place) => String(first + place));
const beganAt = performance.now();
let runs = 0;
let failed = 0;
for (const [place, seed] of seeds.entries()) {
  const result = await simulate({ seed, features: everything, plant, say });
  runs += result.runs;
  if (result.faults.length > 0) {
    failed++;
    console.log(`seed ${seed} fails after ${result.elapsedMs} virtual ms:`);
    for (const fault of result.faults.slice(0, 5)) console.log(`  ${fault}`);
    if (plant) {
      console.log(`the planted bug was found with seed ${place + 1} of ${seeds.length}`);
      break;
    }
  }
}
const seconds = ((performance.now() - beganAt) / 1000).toFixed(1);
console.log(`${seeds.length} seeds, ${runs} starts, ${failed} failed, ${seconds} s`);
if (!plant && failed > 0) process.exit(1);
if (plant && failed === 0) process.exit(1);
