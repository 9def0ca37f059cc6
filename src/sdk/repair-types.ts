import type { RunStatus } from "./types.ts";

export type RepairKind = "cancel" | "resume" | "rerun" | "patch" | "inject";
export type RepairResult = "pending" | "done" | "over" | "refused" | "failed" | "undone";

/** At least one field; `statuses` are those that the action is for when left out. */
export interface RepairSelection {
  functionId?: string;
  eventId?: string;
  statuses?: RunStatus[];
  search?: string;
  since?: Date | string;
  until?: Date | string;
}

export interface RepairOptions {
  filter: RepairSelection;
  /** Of `rerun`, `patch` and `inject`: the id or the name of a step. */
  step?: string;
  /** Of `patch` and `inject`: the step's output. */
  output?: unknown;
  /** Why; kept with the repair. */
  reason?: string;
}

export interface RepairForecast {
  /** Counted up to 100,000. */
  totalCount: number;
  /** There are more than were counted. */
  truncated: boolean;
  byStatus: Partial<Record<RunStatus, number>>;
  /** The newest ten. */
  samples: { runId: string; functionId: string; status: RunStatus; eventName: string; createdAt: string }[];
}

export interface Repair {
  id: string;
  action: RepairKind;
  status: "running" | "paused" | "stopping" | "stopped" | "completed";
  /** `select` while runs are selected, then `work`. */
  phase: "select" | "work";
  reason: string;
  /** The key or user. */
  startedBy: string;
  /** Why it waits or stopped; else empty. */
  note: string;
  counts: Record<RepairResult, number>;
  createdAt: string;
  endedAt?: string;
}

export interface RepairItem {
  runId: string;
  functionId: string;
  outcome: RepairResult;
  /** Why it is not done; else empty. */
  error: string;
  at: string;
}

export interface RepairCalls {
  /** How many runs the filter selects for the action, and ten of them. */
  preview(action: RepairKind, filter: RepairSelection): Promise<RepairForecast>;
  /** Does the action with every run that matches now, in the background. */
  start(action: RepairKind, options: RepairOptions): Promise<Repair>;
  get(id: string): Promise<Repair>;
  list(options?: { limit?: number; cursor?: string }): Promise<{ repairs: Repair[]; nextCursor: string }>;
  /** What became of each run. */
  items(
    id: string,
    options?: { outcome?: RepairResult; limit?: number; cursor?: string },
  ): Promise<{ items: RepairItem[]; nextCursor: string }>;
  pause(id: string): Promise<Repair>;
  continue(id: string): Promise<Repair>;
  /** What has not begun is not done any more. */
  stop(id: string): Promise<Repair>;
}
