import type { Instant } from "../../../kit/clock.ts";
import { Fault, missing } from "../../../kit/fault.ts";
import { stepRowId } from "../../../kit/step-id.ts";
import type { Basics } from "../../../store/store.ts";
import type { FunctionDefinition } from "../../engine/functions/definition.ts";
import type { Run, Step } from "../../engine/runs/run.ts";
import * as rows from "./rows.ts";
import {
  eventsOf,
  type FormerStep,
  formerSteps,
  type HistoryEvent,
  isShown,
  type PastStep,
  statusAt,
  stepAt,
} from "./rules.ts";
import { readTrail, type TrailQuery } from "./trail.ts";

export interface RunState {
  run: Run;
  status: string;
  /** By sequence. */
  steps: (PastStep & { step: Omit<FormerStep, keyof PastStep> })[];
  at: Instant;
}

export interface TimelineEvent extends HistoryEvent {
  stepName: string;
}

export type { Trail, TrailQuery } from "./trail.ts";

export type History = ReturnType<typeof openHistory>;

export interface HistoryDeps extends Basics<"store" | "clock"> {
  runs: {
    get(environmentId: string, runId: string): Promise<Run>;
    steps(environmentId: string, runId: string): Promise<Step[]>;
  };
  definitionOf: (environmentId: string, functionId: string, version: number) => Promise<FunctionDefinition>;
  retentionDaysOf: (environmentId: string) => Promise<number>;
}

/** Reads of history. Each change of a run writes its history in the same transaction. */
export function openHistory({ store, clock, runs, definitionOf, retentionDaysOf }: HistoryDeps) {
  /** The run with the definition that recorded it; no definition when it was not recorded. */
  async function recorded(environmentId: string, runId: string) {
    const run = await runs.get(environmentId, runId);
    const definition = await definitionOf(environmentId, run.functionId, run.functionVersion);
    return { run, definition: definition.recording ? definition : undefined };
  }

  async function stateAt(environmentId: string, runId: string, instant: Instant | undefined) {
    const at = instant ?? clock.now();
    const { run, definition } = await recorded(environmentId, runId);
    if (!definition) throw new Fault("not_found", `run ${runId} was not recorded`);
    const [history, steps] = await Promise.all([
      rows.historyOf(store, environmentId, runId),
      definition.recordingProfile === "run_lifecycle" ? [] : runs.steps(environmentId, runId),
    ]);
    const status = statusAt(history, at);
    if (status === undefined) throw new Fault("not_found", `run ${runId} did not exist yet at that time`);
    const former = definition.recordingProfile === "run_lifecycle" ? [] : formerSteps(history, at).values();
    const byId = new Map([
      ...steps.map((step) => {
        const error = step.error === null ? null : JSON.stringify(step.error);
        return [step.stepId, { ...step, error }] as const;
      }),
      ...[...former].map((step) => [step.stepId, step] as const),
    ]);
    const past = [...byId.values()]
      .sort((a, b) => a.sequence - b.sequence)
      .flatMap((step) => {
        const found = stepAt(history, step, at);
        return found ? [{ ...found, step }] : [];
      });
    return { run, status, steps: past, at };
  }

  return {
    /** `not_found` when the run is missing, did not exist yet, or its function does not record. */
    stateAt,

    /** Empty when the run's function does not record. */
    async timeline(environmentId: string, runId: string): Promise<TimelineEvent[]> {
      const { definition } = await recorded(environmentId, runId);
      if (!definition) return [];
      const [history, steps] = await Promise.all([
        rows.historyOf(store, environmentId, runId),
        runs.steps(environmentId, runId),
      ]);
      const former = [...formerSteps(history, 0).values()];
      const names = new Map([...former, ...steps].map((step) => [step.stepId, step.name]));
      return history
        .flatMap(eventsOf)
        .filter((event) => isShown(definition.recordingProfile, event.type))
        .map((event) => ({
          ...event,
          stepName: event.stepId === null ? "" : (names.get(event.stepId) ?? ""),
        }));
    },

    async stepAt(environmentId: string, runId: string, stepId: string, at: Instant | undefined) {
      const { steps } = await stateAt(environmentId, runId, at);
      const found = steps.find(
        ({ step }) => step.stepId === stepId || stepRowId(runId, step.stepId) === stepId,
      );
      if (!found) throw missing("step", stepId);
      return found;
    },

    trail: (environmentId: string, query: TrailQuery) =>
      readTrail({ store, getRun: (id, runId) => runs.get(id, runId), retentionDaysOf }, environmentId, query),
  };
}
