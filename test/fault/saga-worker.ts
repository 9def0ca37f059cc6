import { createFunction, createWorker, NonRetryableError } from "../../src/sdk/index.ts";
import { deeds, type Ending } from "./saga-points.ts";

/**
 * Workers of sagas, one for each of `endings`, with room for one job each: what one of them waits for holds up no other. They
 * tell the driver each effect and each point that they come to, and stay there until it lets them go on.
 */
const [url = "", apiKey = "", driver = "", asked = "", endings = ""] = process.argv.slice(2);
const { checkpointMs, timeoutMs } = JSON.parse(asked) as { checkpointMs: number; timeoutMs: number };
/** A step without a compensation. It travels with the report that tells of the first one. */
const quote = "quote";
const bare = globalThis.fetch;

async function tell<Answer>(path: "at" | "effect", what: object): Promise<Answer> {
  const answer = await bare(`${driver}/${path}`, { method: "POST", body: JSON.stringify(what) });
  return (await answer.json()) as Answer;
}

/** Whether the driver held it there. */
const at = async (runId: string, point: string): Promise<boolean> =>
  (await tell<{ isHeld: boolean }>("at", { runId, point })).isHeld;

const sagaOf = (ending: Ending) =>
  createFunction(
    {
      id: `saga-${ending}`,
      event: `saga.${ending}`,
      retry: { maxAttempts: 2, initialDelayMs: 10 },
      ...(ending.startsWith("timeout") && { timeoutMs }),
    },
    async ({ step, run }) => {
      const act = async (deed: "do" | "undo", what: string, key: string) => {
        const name = deed === "do" ? what : `undo:${what}`;
        await at(run.id, `${name}.before`);
        const effect = { runId: run.id, deed, what, key };
        const { isRefused } = await tell<{ isRefused: boolean }>("effect", effect);
        if (isRefused) throw new Error("closed for lunch");
        await at(run.id, `${name}.after`);
      };
      await step.run(quote, () => 42);
      for (const what of deeds) {
        await step.run(what, ({ id }) => act("do", what, id), {
          compensate: () => act("undo", what, `${run.id}:${what}`),
        });
        await at(run.id, `${what}.passed`);
      }
      if (ending === "fatal") throw new NonRetryableError("no parcels today");
      if (ending === "attempts") throw new Error("no parcels yet");
      if (ending === "wait") await step.waitForEvent("paid", { timeout: 50, onTimeout: "throw" });
      await step.waitForEvent("paid");
    },
  );

interface SentReport {
  run_id: string;
  status: string;
  compensations?: number;
  steps?: { name: string; status: string; compensation_for?: string }[];
  error?: { code?: string };
}

/** The points before which a report is not sent, and behind which its answer is lost, without `.unsent` and `.unanswered`. */
function pointsOf({ status, compensations, steps = [], error }: SentReport): string[] {
  const stored = steps
    .filter((step) => step.status === "completed")
    .map(({ name, compensation_for: of }) => (of === undefined ? name : `undo:${of}`));
  if (status !== "progress") stored.push(error?.code === "COMPENSATED" ? "undone" : "end");
  else if (compensations !== undefined && steps.every(({ name }) => name === quote)) stored.push("known");
  return stored;
}

const held = async (input: string, init: RequestInit): Promise<Response> => {
  const { reports } = JSON.parse(init.body as string) as { reports: SentReport[] };
  const passed = reports.flatMap((one, place) =>
    pointsOf(one).map((point) => [one.run_id, point, place] as const),
  );
  for (const [runId, point] of passed) await at(runId, `${point}.unsent`);
  const answer = await bare(input, init);
  const text = await answer.text();
  const results = answer.ok ? (JSON.parse(text) as { results: { error?: string }[] }).results : [];
  for (const [runId, point, place] of passed)
    if (results[place] && results[place].error === undefined && (await at(runId, `${point}.unanswered`)))
      throw new TypeError("the connection was lost");
  return new Response(text, answer);
};
globalThis.fetch = Object.assign(
  (input: string, init: RequestInit = {}) =>
    input.endsWith("/exchange") ? held(input, init) : bare(input, init),
  { preconnect: bare.preconnect },
) as typeof fetch;

await Promise.all(
  endings.split(",").map((ending) =>
    createWorker({
      ...{ url, apiKey, checkpointMs, heartbeatMs: 500, maxConcurrentJobs: 1, handleSignals: false },
      functions: [sagaOf(ending as Ending)],
      log: { debug() {}, info() {}, warn() {}, error: console.error },
    }).start(),
  ),
);
await bare(`${driver}/started`, { method: "POST" });
