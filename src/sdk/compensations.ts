import { escapeName, type Scope } from "./scope.ts";
import type { Execution, StepUse } from "./step.ts";

/** What a run undoes when it fails for good. */
export interface Compensations {
  /** Takes the id at once, so that it does not depend on which step ends first; `undo` may come later or never. */
  reserve(name: string, scope: Scope): (undo: () => unknown) => void;
  /** Runs them in reverse order, one after the other. Never throws; one that is stored already is not repeated. */
  run(): Promise<void>;
}

export function createCompensations(execution: Execution): Compensations {
  const registered: { step: StepUse; name: string; undo: () => unknown }[] = [];

  return {
    reserve(name, scope) {
      const own = `compensate:${name}`;
      const n = scope.used.get(own) ?? 0;
      scope.used.set(own, n + 1);
      const step = { name: own, scope, stepId: `${scope.id}:${escapeName(own)}:${n}` };
      return (undo) => void registered.push({ name, undo, step });
    },

    async run() {
      execution.close();
      for (const { step, name, undo } of registered.reverse()) {
        try {
          execution.host.requireHeld();
        } catch {
          return;
        }
        try {
          await execution.perform(step, undo, { compensationFor: name });
        } catch {
          // Recorded as a failed step; the others still have theirs to undo.
        }
      }
    },
  };
}
