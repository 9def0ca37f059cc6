import { mkdtemp } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { type Client, createClient } from "../../src/sdk/index.ts";
import { type RunningProgram, removeFolder, startProgram } from "../support/process.ts";
import { type EngineName, type SpawnedServer, spawnServer } from "../support/server.ts";
import { until } from "../support/until.ts";
import { type Saga, type SagaDriver, startSagaDriver } from "./saga-driver.ts";
import { deeds, type SagaCase, type Victim } from "./saga-points.ts";

export interface SagaOptions {
  engine: EngineName;
  /** Killed one after the other; the sagas of one are held at their points at the same time. */
  batches: readonly { victim: Victim; cases: readonly SagaCase[] }[];
  /** Of the workers: steps of so many milliseconds travel together. */
  checkpointMs: number;
  /** Of the runs that end by their time. */
  timeoutMs: number;
  say?: (line: string) => void;
}

export interface SagaFigures {
  sagas: number;
  kills: number;
  /** Effects that were asked for once more, by the same key. */
  repeated: number;
  /** Steps of which the outcome is not known, as they are listed. */
  listed: number;
  breaches: string[];
}

const program = resolve(import.meta.dir, "saga-worker.ts");
const patience = { deadlineMs: 60_000, everyMs: 50 };

/** Sagas whose worker or server is killed at each of their points; what they reserved must be released once, or listed. */
export async function runSagas({
  engine,
  batches,
  say = () => {},
  ...how
}: SagaOptions): Promise<SagaFigures> {
  const figures: SagaFigures = { sagas: 0, kills: 0, repeated: 0, listed: 0, breaches: [] };
  const folder = await mkdtemp(join(tmpdir(), "svc-sagas-"));
  const driver = startSagaDriver();
  const server = await spawnServer({ engine, settings: { leaseMs: 1_000 } });
  const client = createClient({ url: server.url, apiKey: server.adminKey });
  const workers: RunningProgram[] = [];
  const startWorkers = (cases: readonly SagaCase[]) => {
    const words = [server.url, server.adminKey, driver.url, JSON.stringify(how)];
    const endings = cases.map(({ ending }) => ending).join();
    const worker = startProgram([process.execPath, program, ...words, endings], folder);
    workers.push(worker);
    return worker;
  };
  const world: SagaWorld = { server, client, driver, startWorkers };
  try {
    for (const { victim, cases } of batches) {
      const sagas = await harm(world, victim, cases);
      figures.kills++;
      say(`${engine}: the ${victim} of ${sagas.length} sagas was killed`);
      await Promise.all(sagas.map((saga) => judge(client, saga, victim, figures)));
      await endAll(workers);
    }
    return figures;
  } finally {
    await endAll(workers);
    await server.stop();
    await driver.stop();
    await removeFolder(folder);
  }
}

/** The workers of the next batch are the only ones of their functions. */
async function endAll(workers: RunningProgram[]): Promise<void> {
  for (const worker of workers) if (worker.running()) worker.signal("SIGKILL");
  await Promise.all(workers.map((worker) => worker.exited));
  for (const worker of workers.splice(0)) worker.release();
}

interface SagaWorld {
  server: SpawnedServer;
  client: Client;
  driver: SagaDriver;
  startWorkers(cases: readonly SagaCase[]): RunningProgram;
}

/** Brings sagas to their points, kills the victim there, and lets them go on. */
async function harm(
  { server, client, driver, startWorkers }: SagaWorld,
  victim: Victim,
  cases: readonly SagaCase[],
): Promise<Saga[]> {
  const startedBefore = driver.started();
  const worker = startWorkers(cases);
  await until(() => driver.started() > startedBefore, { about: "the workers", ...patience });
  const sagas = await Promise.all(
    cases.map(async (one) => {
      const [runId] = (await client.emit(`saga.${one.ending}`, {})).runIds;
      return driver.plan(runId!, one);
    }),
  );
  const of = (ending: string) => sagas.filter((saga) => saga.ending === ending);
  const cancel = (saga: Saga) => client.cancelRun(saga.runId, { reason: "changed my mind" });
  const cancelled = cancelWaiting(client, of("cancel"));
  // On a slow machine the time of a run may be over before it comes to its point.
  await eachUntil(sagas, "its point", async ({ runId, ending, reached }) => {
    return (
      reached > 0 || (ending.startsWith("timeout") && (await client.getRun(runId)).endedAt !== undefined)
    );
  });
  await Promise.all(of("cancel-at").map(cancel));
  await eachUntil(of("timeout-at"), "its time to be over", async ({ runId }) => {
    const { phase, status } = await client.getRun(runId);
    return phase === "compensating" || status === "failed";
  });

  if (victim === "server") {
    await server.kill9();
    await server.restart();
    for (const saga of sagas) saga.release();
  } else {
    worker.signal("SIGKILL");
    await worker.exited;
    const lost = of("cancel-lost");
    await eachUntil(lost, "its lease to be over", async ({ runId }) => {
      return (await client.getRun(runId)).status !== "running";
    });
    await Promise.all(lost.map(cancel));
    startWorkers(cases);
    const next = of("cancel-next");
    await eachUntil(next, "the next worker to come to its point", ({ reached }) => reached === 2);
    await Promise.all(next.map(cancel));
    for (const saga of next) saga.release();
  }
  await cancelled;
  return sagas;
}

const eachUntil = (
  sagas: readonly Saga[],
  about: string,
  condition: (saga: Saga) => boolean | Promise<boolean>,
): Promise<unknown> =>
  Promise.all(
    sagas.map((saga) => until(() => condition(saga), { about: `${about}: ${nameOf(saga)}`, ...patience })),
  );

/** Cancels each of them once it waits; those that are held before that, once they have gone on. */
const cancelWaiting = (client: Client, sagas: readonly Saga[]): Promise<unknown> =>
  eachUntil(sagas, "the wait", async ({ runId }) => {
    if ((await client.getRun(runId)).pauseReason !== "wait_event") return false;
    await client.cancelRun(runId, { reason: "changed my mind" });
    return true;
  });

const nameOf = ({ ending, points, runId }: Saga): string => `${ending} at ${points.join(", ")} (${runId})`;

/** Their end may come while a step's outcome is not known; of all others everything must be released. */
const mayBeUnknown = (saga: Saga) => !["fatal", "attempts", "wait", "cancel"].includes(saga.ending);

async function judge(client: Client, saga: Saga, victim: Victim, figures: SagaFigures): Promise<void> {
  const breach = (what: string) => figures.breaches.push(`${victim}, ${nameOf(saga)}: ${what}`);
  figures.sagas++;
  const { runId, effects } = saga;
  const run = await client.waitForRun(runId, { timeoutMs: 60_000 }).catch(() => undefined);
  if (!run) {
    breach("never ended");
    return;
  }
  const status = saga.ending.startsWith("cancel") ? "cancelled" : "failed";
  if (run.status !== status) breach(`ended as ${run.status}`);
  const steps = await client.getRunSteps(runId);
  const failed = steps.filter((step) => step.type === "compensate" && step.status === "failed");
  if ((run.compensationFailed ?? 0) !== failed.length)
    breach(`counts ${run.compensationFailed} as not undone, and lists ${failed.length}`);
  figures.listed += failed.length;
  if (failed.length > 0 && !mayBeUnknown(saga)) breach("lists what it knows");
  if (failed.length > 1) breach("lists more than the step that was under way");
  for (const what of deeds) {
    const own = effects.filter((effect) => effect.what === what);
    const isListed = failed.some((step) => step.compensationFor === what);
    const [done, undone] = (["do", "undo"] as const).map((deed) => own.filter((one) => one.deed === deed));
    figures.repeated += Math.max(0, done!.length - 1) + Math.max(0, undone!.length - 1);
    if (own.at(-1)?.deed === "do" && !isListed) breach(`${what} is neither released nor listed`);
    if (undone!.length > 0 && isListed) breach(`${what} is released and listed`);
    if (undone!.length > 0 && done!.length === 0) breach(`${what} is released and was never done`);
    if (new Set(done!.map(({ key }) => key)).size > 1) breach(`${what} was done under two keys`);
    if (own.some(({ wasStored }) => wasStored)) breach(`${what} was stored, and ran again`);
  }
}
