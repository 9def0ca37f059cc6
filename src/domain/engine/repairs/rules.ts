import { Fault, invalid } from "../../../kit/fault.ts";
import type { ListRunsInput } from "../runs/list-runs.ts";
import type { RunStatus } from "../runs/run.ts";
import { repairErrorCharsMax, repairReasonCharsMax } from "./limits.ts";

export const repairActions = ["cancel", "resume", "rerun", "patch", "inject"] as const;
export type RepairAction = (typeof repairActions)[number];

export const repairOutcomes = ["pending", "done", "over", "refused", "failed", "undone"] as const;
export type RepairOutcome = (typeof repairOutcomes)[number];

/** Of a replay: events with a run of the function, and all events that were passed. */
export interface ReplayCounts {
  skipped?: number;
  scanned?: number;
}

export type RepairCounts = Record<RepairOutcome, number> & ReplayCounts;

export type RepairFilter = Pick<
  ListRunsInput,
  | "functionId"
  | "eventId"
  | "search"
  | "statuses"
  | "since"
  | "until"
  | "compensationFailed"
  | "errorGroup"
  | "eventName"
  | "errorText"
  | "attributes"
>;

/** What is done with each selected run, as it is stored. */
export interface RepairRequest {
  filter: RepairFilter;
  /** Of rerun, patch and inject: the id or the name of a step. */
  step?: string;
  /** Of patch and inject: JSON text. */
  output?: string;
}

/** What a slice of the work came to: there may be more, there is more later, or the repair is over. */
export type SliceEnd = "more" | "later" | "over";

export interface RepairInput {
  action: string;
  filter: RepairFilter;
  step?: string | undefined;
  output?: string | undefined;
  reason?: string | undefined;
}

export function actionOf(text: string): RepairAction {
  const action = repairActions.find((one) => one === text);
  if (!action) throw invalid("action", `must be one of ${repairActions.join(", ")}`);
  return action;
}

/** Runs in other statuses would only be counted as over. */
const statusesOf: Record<RepairAction, readonly RunStatus[]> = {
  cancel: ["waiting_for_capacity", "waiting", "running", "paused"],
  resume: ["failed"],
  rerun: ["failed", "paused"],
  patch: [],
  inject: ["paused"],
};

/** The statuses that the action is for, where the filter names none. */
export function filterOf(action: RepairAction, filter: RepairFilter): RepairFilter {
  const { statuses = [], ...rest } = filter;
  const named = Object.values(rest).some((value) =>
    Array.isArray(value) ? value.length > 0 : Boolean(value),
  );
  if (!named && statuses.length === 0)
    throw invalid(
      "filter",
      "must name at least one of function_id, event_id, search, statuses, since, until, compensation_failed, error_group, event_name, error_text and attributes",
    );
  return { ...rest, statuses: statuses.length > 0 ? statuses : statusesOf[action] };
}

const needs = {
  ...{ cancel: [], resume: [], rerun: ["step"] },
  ...{ patch: ["step", "output_json"], inject: ["step", "output_json"] },
} as const satisfies Record<RepairAction, readonly string[]>;

export function requestOf(input: RepairInput): { action: RepairAction; request: RepairRequest } {
  const action = actionOf(input.action);
  const given = { step: input.step || undefined, output_json: input.output || undefined };
  for (const [field, value] of Object.entries(given)) {
    const isNeeded = (needs[action] as readonly string[]).includes(field);
    if (isNeeded && value === undefined) throw invalid(field, `is required for ${action}`);
    if (!isNeeded && value !== undefined) throw invalid(field, `is not for ${action}`);
  }
  requireReason(input.reason);
  return {
    action,
    request: {
      filter: filterOf(action, input.filter),
      ...(given.step !== undefined && { step: given.step }),
      ...(given.output_json !== undefined && { output: outputOf(given.output_json) }),
    },
  };
}

export function requireReason(reason = ""): void {
  if (reason.length > repairReasonCharsMax)
    throw invalid("reason", `must be at most ${repairReasonCharsMax} characters`);
}

function outputOf(text: string): string {
  try {
    return JSON.stringify(JSON.parse(text));
  } catch {
    throw invalid("output_json", "must be JSON");
  }
}

export function outcomeOf(text: string): RepairOutcome | undefined {
  if (text === "") return undefined;
  const outcome = repairOutcomes.find((one) => one === text);
  if (!outcome) throw invalid("outcome", `must be one of ${repairOutcomes.join(", ")}`);
  return outcome;
}

export const noCounts = (): RepairCounts => ({
  ...{ pending: 0, done: 0, over: 0, refused: 0, failed: 0, undone: 0 },
});

export const noReplayCounts = (): Required<RepairCounts> => ({ ...noCounts(), skipped: 0, scanned: 0 });

export const errorText = (message: string): string => message.slice(0, repairErrorCharsMax);

/**
 * What a refused action comes to: the run ended or went on by itself, or it cannot be done. Undefined: the
 * action may succeed when it is tried again.
 */
export function outcomeOfFault(
  action: RepairAction,
  fault: Fault,
  isAboutRun: boolean,
): "over" | "failed" | undefined {
  if (fault.kind === "unavailable" || fault.kind === "resource_exhausted") return undefined;
  const movesRuns = action === "cancel" || action === "resume" || action === "rerun";
  if (fault.kind === "not_found") return isAboutRun ? "over" : "failed";
  if (movesRuns && ["failed_precondition", "aborted", "already_exists"].includes(fault.kind)) return "over";
  return "failed";
}

export const notOpen = (status: string, verb: string): Fault =>
  new Fault("failed_precondition", `the repair is ${status} and cannot be ${verb}`);
