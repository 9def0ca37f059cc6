import { NonRetryableError } from "../wire/errors.ts";
import type { Logger, StepDeviation } from "../wire/types.ts";
import type { CompletedStep } from "../wire/wire.ts";
import type { SvcFunction } from "./svc-function.ts";

export const deviationsMax = 20;

/** Ends a run whose handler did not come its way again. */
export class NondeterminismError extends NonRetryableError {
  constructor(deviations: readonly StepDeviation[]) {
    const names = deviations.map(({ name, kind }) =>
      kind === "order" ? `${name} (in another order)` : `${name} (not come to)`,
    );
    super(`the handler did not come its way again over stored steps: ${names.join(", ")}`, {
      code: "NONDETERMINISM",
    });
    this.name = "NondeterminismError";
  }
}

/** How a handler that is entered again comes over the steps that are stored. */
export interface Deviations {
  /** The handler came to the step with this id. */
  reached(stepId: string): void;
  /** A call of a step began; what it returns is called once it is settled. */
  opened(): () => void;
  /** A step was called after the handler's return: what was to come after it is unknown. */
  leftOver(): void;
  /** Branches of this scope did not begin, because another one failed. */
  cutShort(prefix: string): void;
  /** What an execution's end tells, if anything. `handed` resolves once every branch got what is stored. */
  atEnd(
    status: "completed" | "yielded" | "failed",
    handed: () => Promise<void>,
  ): Promise<StepDeviation[] | undefined> | undefined;
}

/** Only runs that end reach compensations and `onFailure`. */
const ownNames = /^(?:compensate:|onFailure$)/;

/**
 * Undefined where nothing is stored. Steps of parallel branches come in any order, and a waiting one ends the
 * execution before the others are reached: only a handler that has returned shows what it left out.
 */
export function followSteps(
  runId: string,
  stored: readonly Pick<CompletedStep, "step_id" | "name" | "kept">[],
): Deviations | undefined {
  const awaited = new Map<string, { name: string; place: number | undefined }>();
  for (const [place, { step_id, name, kept }] of stored.entries())
    if (!ownNames.test(name) && !step_id.startsWith(`${runId}:onFailure:`))
      awaited.set(step_id, { name, place: kept ? undefined : place });
  if (awaited.size === 0) return undefined;
  const outOfOrder: StepDeviation[] = [];
  const shortened: string[] = [];
  let lastPlace = -1;
  let openCount = 0;
  let isParallel = false;
  let isLeft = false;

  const closed = () => {
    openCount--;
  };

  function deviations(isSure: boolean): StepDeviation[] | undefined {
    const unreached: StepDeviation[] = [];
    for (const [stepId, { name }] of isSure ? awaited : [])
      if (!shortened.some((prefix) => stepId.startsWith(prefix)))
        unreached.push({ stepId, name, kind: "unreached" });
    const all = isParallel ? unreached : [...unreached, ...outOfOrder];
    return all.length === 0 ? undefined : all.slice(0, deviationsMax);
  }

  async function look(
    status: "completed" | "yielded",
    handed: () => Promise<void>,
  ): Promise<StepDeviation[] | undefined> {
    if (status === "completed" && isParallel && awaited.size > 0) await handed();
    return deviations(status === "completed" ? !isLeft : !isParallel);
  }

  return {
    reached(stepId) {
      const step = awaited.get(stepId);
      if (!step) return;
      awaited.delete(stepId);
      if (step.place === undefined) return;
      if (step.place < lastPlace) outOfOrder.push({ stepId, name: step.name, kind: "order" });
      else lastPlace = step.place;
    },
    opened() {
      if (++openCount > 1) isParallel = true;
      return closed;
    },
    leftOver() {
      isLeft = true;
    },
    cutShort: (prefix) => void shortened.push(prefix),
    atEnd(status, handed) {
      // What threw may have kept the handler from the others.
      if (status === "failed" || (awaited.size === 0 && outOfOrder.length === 0)) return undefined;
      return look(status, handed);
    },
  };
}

/** A field of a report, as JSON. */
export const deviationFields = (deviations: readonly StepDeviation[]): string =>
  `"nondeterminism":${JSON.stringify(deviations.map(({ stepId, ...rest }) => ({ step_id: stepId, ...rest })))}`;

const told = new WeakSet<SvcFunction>();

/** Each function is reported once: its code does the same in every run. */
export function tellDeviations(
  log: Logger,
  target: SvcFunction,
  runId: string,
  deviations: readonly StepDeviation[],
): void {
  if (told.has(target)) return;
  told.add(target);
  log.warn("a handler did not come its way again over the stored steps of its run", {
    ...{ functionId: target.id, runId },
    steps: deviations.map(({ name, kind }) => `${name}: ${kind}`),
  });
}
