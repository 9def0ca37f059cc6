/**
 * `bun run bench:model [--runs 1000,…] [--events 1] [--kb 0] [--days 30] [--hottest 1] [--cores 32] [--mb 200] [--busy 0.6] [--json FILE]`
 *
 * What a cluster needs at a number of runs a second, by what the bench measured: `--json` takes the figures of a file that
 * `bun run bench --json FILE` has written, instead of those below. Each run is started by an event, and `--events` says how many
 * events there are for a run; `--kb` is what data and outputs of a run have beyond the bench's; the busiest environment has the
 * share `--hottest`; PostgreSQL has so many `--cores`, and a disk that takes so many `--mb` a second; `--busy` is the share of a
 * core or a head that is planned with.
 */
import { parseArgs } from "node:util";
import type { Result } from "./figures.ts";

/** CPU seconds and kB for one thing, and how many of it one environment has been seen to take in a second. */
interface Cost {
  serverS: number;
  postgresS: number;
  storedKb: number;
  walKb: number;
  mostPerS: number;
}

/** As `cluster/SCALE.md` has it, which says on which machine. */
const measured: Record<"run" | "event", Cost> = {
  run: { serverS: 0.000_129, postgresS: 0.000_116, storedKb: 3.0, walKb: 5.3, mostPerS: 5_660 },
  event: { serverS: 0.000_036, postgresS: 0.000_015, storedKb: 0.4, walKb: 0.65, mostPerS: 22_700 },
};

const { values: given } = parseArgs({
  options: {
    runs: { type: "string", default: "100,1000,3000,10000,30000" },
    events: { type: "string", default: "1" },
    kb: { type: "string", default: "0" },
    days: { type: "string", default: "30" },
    hottest: { type: "string", default: "1" },
    cores: { type: "string", default: "32" },
    mb: { type: "string", default: "200" },
    busy: { type: "string", default: "0.6" },
    json: { type: "string" },
  },
});
type Given = Exclude<keyof typeof given, "runs" | "json">;
const number = (name: Given): number => {
  const value = Number(given[name]);
  if (!(value >= 0)) throw new Error(`--${name} is a number from 0 on`);
  return value;
};

/** The last figures of a scene that hold. */
const medianOf = (results: readonly Result[], scenario: string) =>
  results.findLast((one) => one.engine === "postgres" && one.scenario === scenario && !one.void)?.medians;

async function costs(file: string | undefined): Promise<typeof measured> {
  if (file === undefined) return measured;
  const lines = (await Bun.file(file).text()).trim().split("\n");
  const results = lines.map((line) => JSON.parse(line) as Result);
  const costOf = (kind: "run" | "event", scenario: string, rate: string): Cost => {
    const found = medianOf(results, scenario);
    const before = measured[kind];
    return {
      serverS: found ? found.serverCpuS! / 1000 : before.serverS,
      postgresS: found ? found.postgresCpuS! / 1000 : before.postgresS,
      storedKb: found?.storedKb ?? before.storedKb,
      walKb: found?.walKb ?? before.walKb,
      mostPerS: found?.[rate] ?? before.mostPerS,
    };
  };
  return { run: costOf("run", "runs", "runsPerS"), event: costOf("event", "callers", "eventsPerS") };
}

const { run, event } = await costs(given.json);
const further = Math.max(0, number("events") - 1);
const of = (name: "serverS" | "postgresS" | "storedKb" | "walKb") => run[name] + further * event[name];

/** What so many runs a second take; `head` is the share of what one environment was seen to take that the busiest one needs. */
function load(runsPerS: number) {
  const postgres = (runsPerS * of("postgresS")) / number("busy");
  const walMb = (runsPerS * (of("walKb") + 2 * number("kb"))) / 1000;
  const dayGb = (runsPerS * 86_400 * (of("storedKb") + number("kb"))) / 1e6;
  const head = number("hottest") * runsPerS * (1 / run.mostPerS + further / event.mostPerS);
  const bounds = {
    "the head of one environment": head / number("busy"),
    "cores of PostgreSQL": postgres / number("cores"),
    "disk of PostgreSQL": walMb / number("mb"),
  };
  const [next, share] = Object.entries(bounds).toSorted(([, a], [, b]) => b - a)[0]!;
  return {
    "runs/s": runsPerS,
    nodes: Math.max(1, Math.ceil((runsPerS * of("serverS")) / number("busy"))),
    "PostgreSQL cores": postgres.toFixed(1),
    "WAL MB/s": walMb.toFixed(1),
    "GB a day": dayGb.toFixed(0),
    "TB kept": ((dayGb * number("days")) / 1000).toFixed(2),
    "head of the busiest": `${Math.round(head * 100)} %`,
    "bounded first by": `${next}${share > 1 ? ", passed" : ` (${Math.round(share * 100)} %)`}`,
  };
}

const rows = given.runs.split(",").map((text) => {
  if (!(Number(text) > 0)) throw new Error("--runs are numbers above 0, with commas between");
  return load(Number(text));
});
console.log(`| ${Object.keys(rows[0]!).join(" | ")} |`);
console.log(
  `|${Object.keys(rows[0]!)
    .map(() => " --- |")
    .join("")}`,
);
for (const row of rows) console.log(`| ${Object.values(row).join(" | ")} |`);
