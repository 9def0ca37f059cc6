import { parseArgs } from "node:util";
import { type EngineName, engines } from "../support/server.ts";
import type { AttackSuite } from "./suite.ts";

const usage = `bun run attack [--only NAME,NAME] [--seed N] [--short] [--engine libsql|postgres]
Runs every test/attack/*.suite.ts in its long form, prints what got through, and fails if anything did.`;

const { values } = parseArgs({
  options: {
    only: { type: "string" },
    seed: { type: "string" },
    short: { type: "boolean", default: false },
    engine: { type: "string" },
    help: { type: "boolean", default: false },
  },
});
if (values.help) {
  console.log(usage);
  process.exit(0);
}

const files = [...new Bun.Glob("*.suite.ts").scanSync({ cwd: import.meta.dir })].sort();
const suites: AttackSuite[] = await Promise.all(
  files.map(async (file) => (await import(`./${file}`)).suite as AttackSuite),
);
const only = values.only?.split(",");
const unknown = only?.filter((name) => !suites.some((suite) => suite.name === name)) ?? [];
if (unknown.length > 0)
  throw new Error(`no suite ${unknown.join(", ")}; there are ${suites.map(({ name }) => name).join(", ")}`);
const seed = values.seed === undefined ? Math.floor(performance.timeOrigin) % 1_000_000 : Number(values.seed);
if (!Number.isSafeInteger(seed)) throw new Error(`--seed must be a whole number\n${usage}`);
const chosen = engines.filter((engine) => values.engine === undefined || engine === values.engine);
if (chosen.length === 0) throw new Error(`no engine ${values.engine}\n${usage}`);

console.log(`seed ${seed}`);
let failed = 0;
for (const suite of suites) {
  if (only && !only.includes(suite.name)) continue;
  const beganAt = performance.now();
  const { size, attempts, breaches } = await suite.run({
    seed,
    long: !values.short,
    engines: chosen as readonly EngineName[],
    log: (line) => console.log(`  ${line}`),
  });
  const seconds = ((performance.now() - beganAt) / 1000).toFixed(1);
  console.log(`${suite.name}: ${attempts} attempts (${size}), ${breaches.length} got through, ${seconds} s`);
  for (const breach of breaches) console.log(`  ${breach}`);
  failed += breaches.length;
}
process.exit(failed > 0 ? 1 : 0);
