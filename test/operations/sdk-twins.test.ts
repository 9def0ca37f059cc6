import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import {
  type Client,
  createClient,
  createFunction,
  createWorker,
  type Run,
  type Step,
  testFunction,
  type Worker,
} from "../../src/sdk/index.ts";
import { chanceOf } from "../support/chance.ts";
import { isNight } from "../support/night.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { child, type Part, play, programOf } from "../support/twin-programs.ts";

const silent = { debug() {}, info() {}, warn() {}, error() {} };
const programsAsked = isNight ? 400 : 60;
const seed = Number(process.env.SVC_TEST_SEED ?? 1);
const retry = { maxAttempts: 3, initialDelayMs: 1, backoffFactor: 1 };

/** What of a run is to be the same in both worlds. */
interface Told {
  status: string;
  output: unknown;
  error: unknown;
  attempts: number;
  steps: string[];
  attributes: Record<string, unknown>;
  lines: string[];
}

function shownError(error: unknown): unknown {
  if (typeof error !== "object" || error === null) return error;
  const {
    message,
    name = "",
    code = "",
    cause,
    errors,
    retryable: _,
    ...more
  } = error as Record<string, unknown>;
  return {
    ...{ message, name, code, cause: shownError(cause), more },
    errors: Array.isArray(errors) ? errors.map(shownError) : undefined,
  };
}
const errorText = (error: Run["error"]) => error && JSON.stringify(shownError(error));
const stepText = (
  runId: string,
  step: Pick<Step, "name" | "type" | "status" | "output" | "error"> & { id: string },
) =>
  JSON.stringify([
    ...[
      step.id.replace(runId, ""),
      step.name,
      step.type.replace(/^wait_for_events$/, "wait_for_event"),
      step.status,
    ],
    // Ids and places of events are each world's own.
    ...[/^(emit|publish):?/.test(step.name) ? null : (step.output ?? null), errorText(step.error) ?? null],
  ]);

const functionOf = (id: string, program: readonly Part[], tried: Map<string, number>) =>
  createFunction({ id, event: `${id}.asked`, retry }, (context) => play(program, context, tried));

/** A function does in a test what it does on a server. Both engines at night. */
const enginesAsked = engines.filter((engine) => isNight || engine === "libsql");

describe.each(enginesAsked)("what testFunction says of functions made by chance, beside %s", (engine) => {
  let server: TestServer;
  let client: Client;
  let worker: Worker;
  const programs = Array.from({ length: programsAsked }, (_, at) => programOf(chanceOf(`${seed}/${at}`)));
  beforeAll(async () => {
    server = await startTestServer({ engine, settings: { leaseMs: 60_000 } });
    client = createClient({ url: server.url, apiKey: server.adminKey });
    const functions = programs.map((program, at) => functionOf(`twin-${at}`, program, new Map()));
    worker = createWorker({
      ...{ client, handleSignals: false, log: silent, maxConcurrentJobs: 50 },
      functions: [child, ...functions],
    });
    await worker.start();
  }, 60_000);
  afterAll(async () => {
    await worker?.drain();
    await server?.stop();
  }, 60_000);

  async function onServer(at: number): Promise<Told> {
    const { runIds } = await client.emit(`twin-${at}.asked`, {});
    const run = await client.waitForRun(runIds[0]!, { timeoutMs: 60_000 });
    const steps = await client.getRunSteps(run.id);
    const { lines } = await client.getRunLogs(run.id);
    return {
      ...{ status: run.status, output: run.output, error: errorText(run.error), attempts: run.attempt },
      steps: steps.map((step) => stepText(run.id, { ...step, id: step.stepId })).toSorted(),
      attributes: run.attributes ?? {},
      lines: lines.map(({ text }) => text).toSorted(),
    };
  }

  async function inMemory(at: number, invokes: boolean): Promise<Told> {
    const test = testFunction(functionOf(`twin-${at}`, programs[at]!, new Map()));
    // A test that names what its run does not come by is refused.
    if (invokes) test.mockInvoke(child, child);
    const result = await test.run({});
    const runId = result.steps[0]?.id.split(":")[0] ?? "";
    return {
      ...{
        status: result.status,
        output: result.output,
        error: errorText(result.error),
        attempts: result.attempts,
      },
      steps: result.steps.map((step) => stepText(runId, step)).toSorted(),
      attributes: result.attributes,
      lines: result.logs.map(({ text }) => text).toSorted(),
    };
  }

  test.each(programs.map((_, at) => at))(
    "program %d",
    async (at) => {
      const told = await onServer(at);
      const invokes = told.steps.some((step) => step.includes(child.id));
      expect(await inMemory(at, invokes), JSON.stringify(programs[at])).toEqual(told);
    },
    90_000,
  );
});
