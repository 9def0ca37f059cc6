/**
 * `bun run bench [--engine postgres|libsql] [--only a|b|c|d|e|g|n|r|runs|steady|lines|latency|one|callers|batches|queued|grown|lone|strict-bun|recovery|…,…]
 *   [--rounds 3] [--seconds N] [--stored 100000] [--worker node|bun] [--jobs 100] [--json FILE] [--analyze] [--profile]`
 *
 * Every round stands between two floors taken right before and after it: single-row commits with 64 callers. A round
 * whose floors differ by more than 15 % is void and repeated once. Medians over the rounds that are not. PostgreSQL is as
 * a user finds it in the first minute, without statistics; `--analyze` has it take them after the warm-up. `--profile` says where the
 * time went: the statements of PostgreSQL behind each scenario, and the server's functions at its end. Its figures are not to be compared.
 */
import { appendFile, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { type PostgresServer, startPostgres } from "../support/postgres.ts";
import { driftMax, type Engine, type Figures, type Round, resultOf, show } from "./figures.ts";
import { grow } from "./grown.ts";
import { type Bench, type Runtime, runToEnd, startBench, startWorker, stopAll } from "./processes.ts";
import { countingSettings, openStatements, profileText } from "./profile.ts";
import { recovery, recoveryScenario } from "./recovery-scenario.ts";
import { type Place, runs, type Scenario, scenarios } from "./scenarios.ts";

const engines = ["postgres", "libsql"] as const;
const { values: given } = parseArgs({
  options: {
    engine: { type: "string" },
    only: { type: "string" },
    rounds: { type: "string", default: "3" },
    seconds: { type: "string" },
    stored: { type: "string", default: "100000" },
    worker: { type: "string", default: "node" },
    jobs: { type: "string", default: "100" },
    profile: { type: "boolean", default: false },
    json: { type: "string" },
    analyze: { type: "boolean", default: false },
  },
});
const wanted = (name: string, value: string | undefined, known: readonly string[]) => {
  if (value !== undefined && !known.includes(value))
    throw new Error(`--${name} is one of ${[...new Set(known)].join(", ")}`);
  return value;
};
const count = (name: string, value: string, most: number) => {
  const number = Number(value);
  if (!(number >= 1 && number <= most)) throw new Error(`--${name} is from 1 to ${most}`);
  return number;
};
const engineWanted = wanted("engine", given.engine, engines);
const names = [...scenarios.flatMap(({ name, letter }) => [letter, name]), "r", "recovery"];
const onlyWanted = given.only?.split(",").map((one) => wanted("only", one, names));
const rounds = count("rounds", given.rounds, 20);
const seconds = given.seconds === undefined ? undefined : count("seconds", given.seconds, 120);
const stored = count("stored", given.stored, 10_000_000);
const how = {
  runtime: wanted("worker", given.worker, ["node", "bun"]) as Runtime,
  jobs: count("jobs", given.jobs, 1_000),
};
const floorSeconds = 2;
const floorCallers = 64;

/** Undone last to first, however the bench ends. */
const undo: (() => Promise<unknown>)[] = [];
let ending: Promise<void> | undefined;
const cleanUp = () => {
  ending ??= (async () => {
    await stopAll();
    for (const one of undo.splice(0).reverse()) await one().catch((error) => console.error(error));
  })();
  return ending;
};
for (const [signal, code] of [
  ["SIGINT", 130],
  ["SIGTERM", 143],
] as const)
  process.once(signal, () => void cleanUp().then(() => process.exit(code)));

type Floor = (callers: number) => Promise<Figures>;

async function floorOf(postgres: PostgresServer | undefined): Promise<Floor> {
  if (postgres) {
    const databaseUrl = await postgres.createDatabase();
    return (callers) => runToEnd("floor.ts", { databaseUrl, seconds: floorSeconds, callers });
  }
  const folder = await mkdtemp(join(tmpdir(), "svc-floor-"));
  undo.push(() => rm(folder, { recursive: true, force: true }));
  const file = join(folder, "floor.db");
  return (callers) => runToEnd("floor.ts", { file, seconds: floorSeconds, callers });
}

async function roundOf(place: Place, scenario: Scenario, floor: Floor): Promise<Round> {
  const before = await floor(floorCallers);
  const figures = await scenario.run(place);
  const after = await floor(floorCallers);
  const lone = scenario.isLone && (await floor(1));
  const mean = (name: string) => (before[name]! + after[name]!) / 2;
  const perS = mean("perS");
  return {
    figures: {
      ...(scenario.relative !== undefined && { ratio: figures[scenario.relative]! / perS }),
      ...figures,
      floorPerS: perS,
      floorP50: mean("p50"),
      floorP95: mean("p95"),
      ...(lone && { floorLoneP50: lone.p50!, floorLoneP99: lone.p99! }),
    },
    drift: Math.abs(before.perS! - after.perS!) / perS,
  };
}

async function tell(
  engine: Engine,
  { name, about, targets }: Pick<Scenario, "name" | "about" | "targets">,
  done: readonly Round[],
): Promise<void> {
  const result = resultOf(engine, name, done);
  console.log(`${show(result, about, targets)}\n`);
  const drifts = done.map((round) => Math.round(round.drift * 1000) / 1000);
  if (given.json !== undefined) await appendFile(given.json, `${JSON.stringify({ ...result, drifts })}\n`);
}

/** Answers how many runs or events there were in all rounds. */
async function measure(place: Place, scenario: Scenario, floor: Floor): Promise<number> {
  const done: Round[] = [];
  for (let number = 0; number < rounds; number++) {
    const round = await roundOf(place, scenario, floor);
    done.push(round);
    if (round.drift > driftMax) done.push(await roundOf(place, scenario, floor));
  }
  await tell(place.engine, scenario, done);
  return done.reduce((sum, { figures }) => sum + figures.count!, 0);
}

const strictWorker = (bench: Bench, { strictOn }: Scenario) =>
  startWorker(bench, { runtime: strictOn!, jobs: how.jobs, strict: true });

/** The same with a strict worker, which runs for this scenario alone. */
async function measureStrict(place: Place, scenario: Scenario, floor: Floor): Promise<number> {
  const worker = await strictWorker(place.bench, scenario);
  try {
    const own = { ...place, bench: { ...place.bench, worker } };
    await runs({ ...own, seconds: 2 }, { event: "bench.strict", seconds: 2 });
    return await measure(own, scenario, floor);
  } finally {
    await worker.stop();
  }
}

/** As autovacuum does within its first minute. */
async function analyze(databaseUrl: string): Promise<void> {
  const sql = new Bun.SQL(databaseUrl, { max: 1 });
  await sql.unsafe("VACUUM ANALYZE");
  await sql.close();
}

const chosen = scenarios.filter(
  ({ name, letter }) => !onlyWanted || onlyWanted.some((one) => one === name || one === letter),
);

async function benchOf(engine: Engine): Promise<void> {
  const settings = given.profile ? countingSettings : {};
  const postgres = engine === "postgres" ? await startPostgres({ settings }) : undefined;
  if (postgres) undo.push(postgres.stop);
  const floor = await floorOf(postgres);
  const plain = chosen.filter(({ grown }) => !grown);
  const grown = chosen.filter((scenario) => scenario.grown);
  if (plain.length > 0) {
    const databaseUrl = await postgres?.createDatabase();
    const folder = given.profile ? await mkdtemp(join(tmpdir(), "svc-profile-")) : undefined;
    const bench = await startBench(databaseUrl, { how, ...(folder !== undefined && { profile: folder }) });
    undo.push(bench.stop);
    const statements = given.profile && databaseUrl ? await openStatements(databaseUrl) : undefined;
    const place: Place = { engine, bench, postgresPid: postgres?.pid(), seconds };
    // What is compiled on the first thousand runs is not what is measured.
    await runs({ ...place, seconds: 2 }, { event: "bench.run", seconds: 2 });
    if (databaseUrl !== undefined && given.analyze) await analyze(databaseUrl);
    for (const scenario of plain) {
      await statements?.reset();
      const done = await (scenario.strictOn ? measureStrict : measure)(place, scenario, floor);
      if (statements) console.log(`${await statements.text(done)}\n`);
    }
    await statements?.close();
    await bench.stop();
    if (folder !== undefined) {
      console.log(`${await profileText(folder)}\n`);
      await rm(folder, { recursive: true });
    }
  }
  if (grown.length > 0) await measureGrown(grown, { engine, postgres, floor });
  if (!onlyWanted || onlyWanted.includes("r") || onlyWanted.includes("recovery")) {
    const done: Round[] = [];
    for (let number = 0; number < rounds; number++) done.push({ figures: await recovery(engine), drift: 0 });
    await tell(engine, recoveryScenario, done);
  }
  for (const one of undo.splice(0).reverse()) await one();
}

/** Rounds by servers that have just been started: one for those with the usual worker, and one for each strict one. */
async function measureGrown(
  grown: readonly Scenario[],
  { engine, postgres, floor }: { engine: Engine; postgres: PostgresServer | undefined; floor: Floor },
): Promise<void> {
  const databaseUrl = await postgres?.createDatabase();
  const folder = await mkdtemp(join(tmpdir(), "svc-grown-"));
  undo.push(() => rm(folder, { recursive: true, force: true }));
  const file = join(folder, "svc.db");
  await grow(databaseUrl === undefined ? { file } : { databaseUrl }, stored);
  const usual = grown.filter(({ strictOn }) => strictOn === undefined);
  const starts = [usual, ...grown.filter(({ strictOn }) => strictOn !== undefined).map((one) => [one])];
  const done = new Map<Scenario, Round[]>(grown.map((scenario) => [scenario, []]));
  for (let number = 0; number < rounds; number++)
    for (const together of starts.filter(({ length }) => length > 0)) {
      const bench = await startBench(databaseUrl, { file, keyFile: join(folder, "key.json"), how });
      undo.push(bench.stop);
      const worker = together[0]!.strictOn ? await strictWorker(bench, together[0]!) : bench.worker;
      const place: Place = { engine, bench: { ...bench, worker }, postgresPid: postgres?.pid(), seconds };
      for (const scenario of together) done.get(scenario)!.push(await roundOf(place, scenario, floor));
      if (worker !== bench.worker) await worker.stop();
      await bench.stop();
    }
  for (const [scenario, round] of done) await tell(engine, scenario, round);
}

let failed = false;
for (const engine of engines) {
  if (engineWanted !== undefined && engineWanted !== engine) continue;
  try {
    await benchOf(engine);
  } catch (error) {
    // A signal ends the programs under the measurement, which then fails: that is no news.
    if (ending) break;
    failed = true;
    console.error(`${engine}:`, error);
    for (const one of undo.splice(0).reverse()) await one().catch(() => {});
  }
}
await cleanUp();
process.exit(failed ? 1 : 0);
