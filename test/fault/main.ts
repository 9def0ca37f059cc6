import { parseArgs } from "node:util";
import { choose, runRound } from "./rounds.ts";
import { startWorld } from "./world.ts";

// bun run faults [--rounds N] [--seed N]: random faults under load on one world; a round's seed runs it again.
const { values } = parseArgs({
  options: { rounds: { type: "string", default: "100" }, seed: { type: "string" } },
});
const rounds = Number(values.rounds);
const firstSeed = Number(values.seed ?? Math.floor(Math.random() * 1e9));
console.log(`${rounds} rounds from seed ${firstSeed}`);

const world = await startWorld();
let failed = 0;
const total = { acked: 0, refused: 0 };
try {
  for (let round = 0; round < rounds; round++) {
    const seed = firstSeed + round;
    const { chosen, chance, atOnce } = choose(seed);
    const result = await runRound(world, chosen, chance, atOnce);
    total.acked += result.acked;
    total.refused += result.refused;
    const verdict = result.breaches.length === 0 ? "ok" : "BROKEN";
    const what = result.names.join(atOnce ? " + " : ", then ");
    console.log(
      `${String(round + 1).padStart(3)} seed ${seed} ${verdict} ${result.seconds.toFixed(1)} s, ${result.acked} acked, ${result.refused} refused: ${what}`,
    );
    for (const breach of result.breaches.slice(0, 25)) console.log(`      ${breach}`);
    if (result.breaches.length > 0) failed++;
  }
} finally {
  await world.stop();
}
console.log(
  `${rounds - failed} of ${rounds} rounds sound; ${total.acked} emits acked, ${total.refused} answers refused`,
);
process.exit(failed === 0 ? 0 : 1);
