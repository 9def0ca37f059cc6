import { layOut } from "./layout.ts";
import { startNatsPart, untilNatsAgrees } from "./nats.ts";
import { settingsOf, startNodePart } from "./nodes.ts";
import { asCommand, parseUp, Refused, type UpOptions, upUsage } from "./options.ts";
import { isFree } from "./ports.ts";
import { hasData, startPostgresPart } from "./postgres.ts";
import { findNatsServer, findPostgresProgram } from "./programs.ts";
import {
  type PartState,
  partsOf,
  readState,
  runningOf,
  type State,
  writeEnvironment,
  writeState,
} from "./state.ts";
import { stopParts } from "./stop.ts";
import { tableOf } from "./table.ts";

const flagOf = { postgres: "--postgres-port", nats: "--nats-port", node: "--ports" } as const;

async function requireFreePorts(part: PartState): Promise<void> {
  for (const port of [part.port, part.clusterPort, part.monitorPort]) {
    if (port === undefined || (await isFree(port, "127.0.0.1"))) continue;
    throw new Refused(
      `${part.name} cannot have port ${port}, another program has it: stop that program, or choose other ports with ${flagOf[part.kind]} N or --ports 0`,
    );
  }
}

async function startPart(state: State, part: PartState): Promise<void> {
  await requireFreePorts(part);
  // Each writes the state as soon as its process runs: whatever runs must be found by `down`, also when this ends here.
  if (part.kind === "postgres") await startPostgresPart(state, part);
  else if (part.kind === "nats") await startNatsPart(state, part);
  else await startNodePart(state, part);
}

/** Waits for all before it reports the first failure, so that nothing goes on behind the operator's back. */
async function startTogether(state: State, parts: PartState[]): Promise<void> {
  const outcomes = await Promise.allSettled(parts.map((part) => startPart(state, part)));
  for (const outcome of outcomes) if (outcome.status === "rejected") throw outcome.reason;
}

/** One without data is made from the one that has them, which runs by then. */
async function startDatabases(state: State, parts: PartState[]): Promise<void> {
  const isMade = (part: PartState) => hasData(state, part);
  await startTogether(state, parts.filter(isMade));
  for (const part of parts.filter((one) => !isMade(one))) await startPart(state, part);
}

/** Starts what does not run, in the order in which parts need each other; answers what it started. */
async function start(state: State, only: string | undefined): Promise<PartState[]> {
  const dead = partsOf(state).filter(
    (part) => !runningOf(part) && (only === undefined || part.name === only),
  );
  const of = (kind: PartState["kind"]) => dead.filter((part) => part.kind === kind);
  if (of("postgres").length > 0) findPostgresProgram("initdb");
  if (of("nats").length > 0) findNatsServer();

  await Promise.all([startDatabases(state, of("postgres")), startTogether(state, of("nats"))]);
  if (of("nats").length > 0) await untilNatsAgrees(state);
  // The first alone: it lands the migrations and writes the key file.
  const [first, ...others] = of("node");
  if (first) await startTogether(state, [first]);
  await startTogether(state, others);
  return dead;
}

async function up(options: UpOptions): Promise<void> {
  const state = await layOut(readState(options.folder), options, settingsOf(process.env));
  writeState(state);
  const started = await start(state, options.only);
  writeEnvironment(state);
  console.log(await tableOf(state, new Set(started.map(({ name }) => name))));
  if (options.detach || started.length === 0) return;

  console.log("An interrupt (Ctrl-C) stops what was started here.");
  // The signals alone do not keep a process alive.
  const alive = setInterval(() => {}, 60_000);
  await new Promise<void>((done) => {
    for (const signal of ["SIGINT", "SIGTERM"] as const) process.on(signal, () => done());
  });
  clearInterval(alive);
  const current = readState(options.folder);
  if (current)
    await stopParts(
      current,
      started.map(({ name }) => name),
    );
}

await asCommand(async () => {
  const options = parseUp(process.argv.slice(2));
  if (options) await up(options);
  else console.log(upUsage);
});
