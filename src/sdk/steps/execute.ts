import { attributeSetter } from "../wire/attributes.ts";
import { reportedError, StepFailedError } from "../wire/errors.ts";
import { handlerLogger } from "../wire/log.ts";
import { outputText } from "../wire/payload.ts";
import { foldedStack } from "../wire/stack.ts";
import type { LineLevel, Logger } from "../wire/types.ts";
import type { AskedWait, Assignment, Yield } from "../wire/wire.ts";
import type { ExecutionEnd, FailedEnd } from "./attempts.ts";
import { createCompensations, undo } from "./compensations.ts";
import { followSteps, NondeterminismError, tellDeviations } from "./deviations.ts";
import type { HandlerContext } from "./function.ts";
import { capturing } from "./run-lines.ts";
import { createExecution } from "./step.ts";
import { createSteps } from "./step-api.ts";
import type { ExecutionHost } from "./step-host.ts";
import type { HandlerEvent, SvcFunction } from "./svc-function.ts";

/** The run as its handler is entered. */
export type ExecutionInput = Pick<
  Assignment,
  | "run_id"
  | "attempt"
  | "max_attempts"
  | "event"
  | "events"
  | "actor_id"
  | "context"
  | "sequence"
  | "compensating"
  | "log_seen"
>;

/**
 * Enters the handler and follows it to its end or its next yield, by the same rules wherever it runs: in a
 * worker, behind an endpoint, in a test. The host gets finished steps as they finish. Never throws.
 */
export async function execute(
  target: SvcFunction,
  entry: ExecutionInput,
  host: ExecutionHost,
  log: Logger,
): Promise<ExecutionEnd> {
  const deviations = entry.compensating ? undefined : followSteps(entry.run_id, host.stored());
  const execution = createExecution(entry.run_id, host, log, deviations);
  const compensations = createCompensations(execution);

  const set = attributeSetter((attributes) => host.set(attributes));

  let seen = 0;
  const { log_seen: seenBefore = 0 } = entry;
  /** A handler that is entered again writes again, outside of steps, what it wrote on its way before. */
  function write(level: LineLevel, text: string, fields?: Record<string, unknown>): void {
    const step = execution.scopes.currentStep();
    if (step !== undefined || execution.scopes.isUndoing()) host.write({ level, text, fields, step });
    else if (++seen > seenBefore) host.write({ level, text, fields, seen });
  }
  const output = (name: string) => ({
    write(chunk: unknown): Promise<void> {
      const source = execution.scopes.currentTry() ?? { stepId: "", entry: 0 };
      return host.output?.(name, source, chunk) ?? Promise.resolve();
    },
  });
  const keeping: <Result>(work: () => Result) => Result = host.keepsConsole
    ? (work) => capturing(write, work)
    : (work) => work();

  async function context(): Promise<HandlerContext> {
    const { events: reader } = target;
    const event = reader ? await reader.read(givenOf(entry.event)) : givenOf(entry.event);
    const batch = entry.events?.map(givenOf);
    let bound: Logger | undefined;
    return {
      event,
      events: batch ? await Promise.all(batch.map((one) => reader?.read(one) ?? one)) : [event],
      step: createSteps(execution, compensations, target.events),
      run: {
        id: entry.run_id,
        functionId: target.id,
        attempt: entry.attempt,
        maxAttempts: entry.max_attempts ?? 0,
        ...(entry.actor_id !== undefined && { actorId: entry.actor_id }),
        ...(entry.sequence !== undefined && { sequence: entry.sequence }),
        ...{ set, output },
      },
      // Most handlers look at neither.
      get signal() {
        return host.signal();
      },
      get log() {
        const own = { runId: entry.run_id, functionId: target.id, attempt: entry.attempt };
        bound ??= handlerLogger(log, own, write);
        return bound;
      },
      secrets: entry.context?.secrets ?? {},
      traceparent: entry.context?.traceparent,
    };
  }

  const { compensating } = entry;
  if (compensating) return keeping(() => undo(target, compensating, { execution, compensations, context }));
  let end: ExecutionEnd;
  try {
    await host.sure();
    const returned = await execution.follow(async () => {
      const given = (await context()) as never;
      return keeping(() => target.handler(given));
    });
    if (returned) {
      const text = outputText(`the result of function ${target.id}`, returned.output);
      end = { status: "completed", outputText: text ?? "null" };
    } else {
      const { list, isWhole } = execution.waits();
      const { after: _, ...first } = firstOf(list, host.now());
      end = { status: "yielded", yield: first as Yield, ...(isWhole && { yields: list }) };
    }
  } catch (error) {
    end = { status: "failed", error: failureOf(error, execution.stepOf(error)) };
  }
  const looking = deviations?.atEnd(end.status, () => execution.whenResting());
  const found = looking && (await looking);
  if (found) {
    tellDeviations(log, target, entry.run_id, found);
    if (target.definition.nondeterminism === "fail")
      end = { status: "failed", error: reportedError(new NondeterminismError(found)) };
    end.deviations = found;
  }
  if (end.status === "failed" && !end.error.retryable && !host.undoes) await compensations.run();
  return end;
}

/** The one that the server gets: the first that was called, and of times the one that is over first. */
function firstOf(waits: readonly AskedWait[], nowMs: number): AskedWait {
  const times = waits.flatMap((one) => {
    if (one.type === "sleep") return { one, endsMs: Date.parse(one.until) };
    return one.type === "retry_step" ? { one, endsMs: nowMs + one.duration_ms } : [];
  });
  if (waits[0] !== times[0]?.one) return waits[0]!;
  return times.reduce((least, time) => (time.endsMs < least.endsMs ? time : least)).one;
}

const failureOf = (thrown: unknown, stepId: string | undefined): FailedEnd["error"] => ({
  ...reportedError(thrown, foldedStack),
  ...(stepId && { step_id: stepId }),
  ...(stepId && thrown instanceof StepFailedError && { exhausted: true }),
});

const givenOf = ({ idempotency_key, ...event }: Assignment["event"]): HandlerEvent =>
  idempotency_key === undefined ? event : { ...event, idempotencyKey: idempotency_key };
