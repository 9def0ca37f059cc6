/**
 * `bun run bench:scale [--runs 100] [--times 1,10,100] [--seconds 20] [--seed 1] [--environments 200] [--hottest 0.2]`
 *
 * A simulation of a cluster under a base load of runs and a multiple of it, by what the bench measured: what each resource is
 * used, what a run takes, and which resource is full first. It needs no server and no clock. First it shows how far it is from the
 * bench where both know the answer.
 */
import { parseArgs } from "node:util";
import { type Cluster, type Load, type Outcome, simulate } from "./cluster-simulation.ts";
import { benchMachine, measuredCosts } from "./measured-costs.ts";

const { values: given } = parseArgs({
  options: {
    runs: { type: "string", default: "100" },
    times: { type: "string", default: "1,10,100" },
    seconds: { type: "string", default: "20" },
    seed: { type: "string", default: "1" },
    environments: { type: "string", default: "200" },
    hottest: { type: "string", default: "0.2" },
  },
});
const [base, seconds, seed] = [Number(given.runs), Number(given.seconds), Number(given.seed)];
const [environments, hottest] = [Number(given.environments), Number(given.hottest)];

/** The busiest of so many clusters: environments are homed so that each has the same load, as far as the busiest one lets it. */
function homedIn(clusters: number, cluster: Cluster, load: Load): [Cluster, Load] {
  const share = Math.max(cluster.hottest, 1 / clusters);
  const others = share - cluster.hottest;
  const among = Math.max(1, Math.round(((cluster.environments - 1) * others) / (1 - cluster.hottest)) + 1);
  return [
    { ...cluster, environments: among, hottest: cluster.hottest / share },
    { ...load, runsPerS: load.runsPerS * share },
  ];
}

const percent = (share: number) => `${Math.round(share * 100)} %`;
const ms = (value: number) => (value >= 10_000 ? "more than 10 s" : value.toPrecision(3));

/** The least share of the runs that must have ended in the time: those of its last moments are still on their way. */
const heldShare = 0.985;

function rowOf(about: string, load: Load, outcome: Outcome) {
  const { utilisation, offered, completed, first } = outcome;
  const isHeld = completed >= offered * heldShare;
  return {
    cluster: about,
    "runs/s": Math.round(load.runsPerS),
    "done/s": Math.round(completed / load.seconds),
    "p50 ms": isHeld ? ms(outcome.p50Ms) : "grows",
    "p99 ms": isHeld ? ms(outcome.p99Ms) : "grows",
    node: percent(utilisation["event loops of nodes"]!),
    PostgreSQL: percent(utilisation["cores of PostgreSQL"]!),
    head: percent(utilisation["head of the busiest environment"]!),
    disk: percent(utilisation["sync of the disk"]!),
    NATS: utilisation.NATS === undefined ? "" : percent(utilisation.NATS),
    busiest: `${first}${isHeld ? "" : ", full"}`,
  };
}

function table(rows: readonly object[]): void {
  const names = Object.keys(rows[0]!);
  console.log(`| ${names.join(" | ")} |\n|${names.map(() => " --- |").join("")}`);
  for (const row of rows) console.log(`| ${Object.values(row).join(" | ")} |`);
}

/** The highest rate that is held, to a hundredth. */
function mostHeld(cluster: Cluster, load: Omit<Load, "runsPerS">, upTo: number): number {
  let [held, failed] = [0, upTo];
  while (failed - held > held / 100 + 1) {
    const runsPerS = Math.round((held + failed) / 2);
    const { completed, offered } = simulate(cluster, { ...load, runsPerS });
    if (completed >= offered * heldShare) held = runsPerS;
    else failed = runsPerS;
  }
  return held;
}

function showErrors(): void {
  const load = { seconds, seed, isEven: true };
  const p50 = (runsPerS: number) => simulate(benchMachine, { ...load, runsPerS }).p50Ms;
  const points: [what: string, measured: number, simulated: number][] = [
    ["a run at 20 a second, p50 ms", 3.995, p50(20)],
    ["a run at 800 a second, p50 ms", 15.6, p50(800)],
    ["runs a second, as many as go", 5_665, mostHeld(benchMachine, load, 20_000)],
  ];
  table(
    points.map(([what, measured, simulated]) => ({
      "the bench, PostgreSQL, 24 November, 03:36": what,
      measured,
      simulated: Number(simulated.toPrecision(3)),
      error: percent(simulated / measured - 1),
    })),
  );
}

function clusters(): Record<string, (load: Load) => [Cluster, Load]> {
  const one: Cluster = { nodes: 4, postgresCores: 8, environments, hottest, costs: measuredCosts };
  const disk = { ...measuredCosts, syncMs: 0.1 };
  const bigger: Cluster = { ...one, postgresCores: 32, costs: disk };
  return {
    "one: 4 nodes, 8 cores, sync 0.2 ms": (load) => [one, load],
    "bigger PostgreSQL: 4 nodes, 32 cores, sync 0.1 ms": (load) => [bigger, load],
    "bigger in all: 8 nodes, 32 cores, sync 0.1 ms": (load) => [{ ...bigger, nodes: 8 }, load],
    "busiest of 4 like the first": (load) => homedIn(4, one, load),
    "busiest of 8 like the first": (load) => homedIn(8, one, load),
  };
}

function showLoads(): void {
  const rows = given.times.split(",").flatMap((times) =>
    Object.entries(clusters()).map(([about, of]) => {
      const [cluster, own] = of({ runsPerS: base * Number(times), seconds, seed });
      return rowOf(about, own, simulate(cluster, own));
    }),
  );
  table(rows);
}

/** Of all runs, those of the other clusters with them; and what is full there. */
function showMost(): void {
  const load = { seconds: 4, seed };
  const rows = Object.entries(clusters()).map(([about, of]) => {
    const [cluster, { runsPerS: share }] = of({ ...load, runsPerS: 1 });
    const held = mostHeld(cluster, load, 60_000);
    const passed = { ...load, runsPerS: held * 1.1 };
    const row = rowOf(about, passed, simulate(cluster, passed));
    return {
      cluster: about,
      "holds, runs/s of all": Math.round(held / share),
      "full a tenth above it": row.busiest,
    };
  });
  table(rows);
}

for (const part of [showErrors, showLoads, showMost]) {
  part();
  console.log("");
}
