import { type Duration, durationMs } from "./duration.ts";
import { NonRetryableError, reportedError } from "./errors.ts";
import type { CompletedStep, Yield } from "./wire.ts";

/** The durable pieces of a handler. Names may repeat; the n-th use of a name is its own step. */
export interface Steps {
  /**
   * Runs `work` once and for all: its result (as JSON) is stored, and given back instead of running it again. What it
   * throws is recorded and thrown on. A crash between the end of `work` and its storing runs it again.
   */
  run<Output>(name: string, work: () => Output | Promise<Output>): Promise<Output>;
  /** Gives the worker free for that long (`250`, `"10s"`, `"7d"`); the handler is entered again afterwards. */
  sleep(name: string, duration: Duration): Promise<void>;
  /** The same until an instant: Date, RFC 3339 text or milliseconds since 1970. */
  sleepUntil(name: string, at: Date | string | number): Promise<void>;
}

/** Ends the execution until its step is due. Not an Error: nothing should treat it as one. */
export class Suspended {
  readonly yielded: Yield;
  constructor(yielded: Yield) {
    this.yielded = yielded;
  }
}

/** What steps need of the job they belong to. */
export interface StepHost {
  readonly runId: string;
  /** Throws when the execution is over: taken over, cancelled, or asleep. */
  requireGoing(): void;
  memo(stepId: string): CompletedStep | undefined;
  /** Undefined when the execution surely is this worker's; otherwise resolves when it is, and throws when it is not. */
  sure(): Promise<void> | undefined;
  /** `work` is under way until this is called. */
  begin(): () => void;
  /** Takes the JSON of a finished step. Resolves at once, or in strict mode when the server has stored it. */
  record(stepText: string): Promise<void> | undefined;
  suspend(reason: Yield): never;
}

const keptPrefixes = /^(?:compensate|publish):/;

/** `a:b\c` reads `a\:b\\c`, so that no name can imitate another's id. */
export function escapeName(name: string): string {
  if (!name.includes(":") && !name.includes("\\")) return name;
  const prefix = keptPrefixes.exec(name)?.[0] ?? "";
  return prefix + name.slice(prefix.length).replaceAll("\\", "\\\\").replaceAll(":", "\\:");
}

/** JSON of a result; undefined for none. NonRetryableError for what JSON cannot hold: trying again would not help. */
export function outputText(whose: string, output: unknown): string | undefined {
  try {
    return JSON.stringify(output);
  } catch (cause) {
    throw new NonRetryableError(`the result of ${whose} cannot be written as JSON`, {
      code: "SERIALIZATION_ERROR",
      cause,
    });
  }
}

export function createSteps(host: StepHost): Steps {
  const used = new Map<string, number>();

  function identify(name: string): { stepId: string; memo: CompletedStep | undefined } {
    if (typeof name !== "string" || name === "") throw new TypeError("a step needs a name");
    host.requireGoing();
    const n = used.get(name) ?? 0;
    used.set(name, n + 1);
    const stepId = `${host.runId}:${escapeName(name)}:${n}`;
    // Rows of older SDKs carry the name as it is.
    return { stepId, memo: host.memo(stepId) ?? host.memo(`${host.runId}:${name}:${n}`) };
  }

  async function sleepUntilMs(name: string, until: () => number): Promise<void> {
    const { stepId, memo } = identify(name);
    if (memo) return;
    const at = until();
    if (Number.isNaN(at)) throw new TypeError(`step ${name}: not an instant`);
    host.suspend({ step_id: stepId, step_name: name, type: "sleep", until: new Date(at).toISOString() });
  }

  return {
    async run<Output>(name: string, work: () => Output | Promise<Output>): Promise<Output> {
      const { stepId, memo } = identify(name);
      if (memo) return memo.output as Output;
      const end = host.begin();
      try {
        await host.sure();
        const startedMs = Date.now();
        // Written by hand, once: the text goes into the report as it is.
        const row = (rest: string, endedMs: number) =>
          `{"id":${JSON.stringify(stepId)},"name":${JSON.stringify(name)},"type":"invoke",${rest},` +
          `"started_at":"${new Date(startedMs).toISOString()}","ended_at":"${new Date(endedMs).toISOString()}",` +
          `"duration_ms":${Math.max(0, endedMs - startedMs)}}`;
        let output: Output;
        let text: string | undefined;
        try {
          output = await work();
          text = outputText(`step ${name}`, output);
        } catch (error) {
          if (!(error instanceof Suspended)) {
            await host.record(
              row(`"status":"failed","error":${JSON.stringify(reportedError(error, true))}`, Date.now()),
            );
          }
          throw error;
        }
        const rest = text === undefined ? `"status":"completed"` : `"status":"completed","output":${text}`;
        await host.record(row(rest, Date.now()));
        return output;
      } finally {
        end();
      }
    },

    sleep: (name, duration) => sleepUntilMs(name, () => Date.now() + durationMs(duration)),
    sleepUntil: (name, at) => sleepUntilMs(name, () => new Date(at).getTime()),
  };
}
