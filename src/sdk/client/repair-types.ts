import type { SvcFunction } from "../steps/svc-function.ts";
import type { PauseWord } from "../wire/pause-words.ts";
import type { AttributeCondition, AttributeValue, Run, RunStatus } from "../wire/types.ts";
import type { RunErasureCalls } from "./run-erasure.ts";

export type RepairKind = "cancel" | "resume" | "rerun" | "patch" | "inject";
/** A place in the environment's log, or a time. */
export type ReplayPlace = number | Date | string;
export type RepairResult = "pending" | "done" | "over" | "refused" | "failed" | "undone";

/** Which runs. Of a repair at least one field; `statuses` are those that the action is for when left out. */
export interface RepairSelection {
  functionId?: string;
  eventId?: string;
  statuses?: (RunStatus | PauseWord)[];
  search?: string;
  since?: Date | string;
  until?: Date | string;
  /** Only runs with compensations that failed for good. */
  compensationFailed?: boolean;
  /** Only failures of this group, see `client.errors`. */
  errorGroup?: string;
  /** Only runs that an event of this name started. */
  eventName?: string;
  /** Only failures whose message, code or stack holds this text, in either case. */
  errorText?: string;
  /** What their attributes are: a value, or conditions: `{ orderId: "o-1", total: { gte: 100 } }`. */
  attributes?: Record<string, AttributeValue | AttributeCondition>;
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

/** Which events of the past. */
export interface ReplaySelection {
  /** An event's name, or a pattern with `*` and a last `>`; the function's own triggers when left out. */
  pattern?: string;
  /** CEL over `event` and `data`. */
  filter?: string;
  /** The first event; the oldest that is kept when left out. `out_of_range` for one that has expired. */
  from?: ReplayPlace;
  /** The last event; the newest when left out. */
  to?: ReplayPlace;
  /** Also events that the function has a run of. */
  again?: boolean;
}

export interface ReplayOptions extends ReplaySelection {
  /** The function becomes active where the window ends: its triggers start every later event. */
  thenLive?: boolean;
  /** Why; kept with the replay. */
  reason?: string;
}

export interface ReplayForecast {
  fromPosition: number;
  toPosition: number;
  /** Events that were looked at, from the beginning of the window. */
  scanned: number;
  /** The window has more events than were looked at. */
  truncated: boolean;
  matched: number;
  /** Those of the matching ones that the function has a run of. */
  withRun: number;
  /** Runs that a replay would start of what was looked at. */
  toStart: number;
  /** The first ten. */
  samples: { eventId: string; name: string; position: number; at: string; hasRun: boolean }[];
}

export interface Repair {
  id: string;
  action: RepairKind | "replay";
  status: "running" | "paused" | "stopping" | "stopped" | "completed";
  /** `select` while runs are selected, then `work`. */
  phase: "select" | "work";
  reason: string;
  /** The key or user. */
  startedBy: string;
  /** Why it waits or stopped; else empty. */
  note: string;
  /** A replay also counts events that had a run (`skipped`), and all that it has passed (`scanned`). */
  counts: Record<RepairResult, number> & { skipped?: number; scanned?: number };
  /** Of a replay: how far it is, its window, and from where on the function's triggers start events. */
  replay?: { position: number; fromPosition: number; toPosition: number; liveFrom?: number };
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
  /** Of a replay. */
  eventId?: string;
}

export interface RepairCalls {
  /** How many runs the filter selects for the action, and ten of them. */
  preview(action: RepairKind, filter: RepairSelection): Promise<RepairForecast>;
  /** Does the action with every run that matches now, in the background. */
  start(action: RepairKind, options: RepairOptions): Promise<Repair>;
  /** Which events a replay would start the function on, and ten of them. */
  previewReplay(target: Pick<SvcFunction, "id"> | string, events?: ReplaySelection): Promise<ReplayForecast>;
  /** Starts the function once on each matching event of the past, in the background. */
  replayEvents(target: Pick<SvcFunction, "id"> | string, options?: ReplayOptions): Promise<Repair>;
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

export type CauseKind = "event" | "run" | "step" | "message" | "delivery" | "letter";

export interface CauseNode {
  kind: CauseKind;
  id: string;
  /** The event's name, the run's function, the step's name, the topic, the webhook source or endpoint. */
  name: string;
  /** Of a run, a step and a delivery; else empty. */
  status: string;
  /** RFC 3339. */
  at: string;
  /** Steps away from what was asked about; negative for causes. */
  depth: number;
  /** The stream that the event was appended to, and its version there. */
  entity?: { id: string; version: number };
}

export interface CauseEdge {
  cause: { kind: CauseKind; id: string };
  effect: { kind: CauseKind; id: string };
  relation: "started" | "emitted" | "appended" | "published" | "invoked" | "took" | "brought" | "undelivered";
}

export interface CauseGraphOptions {
  /** Both when left out. */
  direction?: "causes" | "effects";
  /** Levels, 1 to 50; 10 when left out. */
  depth?: number;
  /** Things, 1 to 1,000; 200 when left out. */
  limit?: number;
}

export interface CauseGraph {
  /** By distance, causes first. */
  things: CauseNode[];
  links: CauseEdge[];
  /** There is more, further away or beside. */
  truncated: boolean;
  /** Things that deny policies keep from the caller. */
  hidden: number;
}

export interface CausalityCalls {
  /**
   * What led to a thing, and what it led to. A step is named by its run's id, a slash and its own; a message
   * by its sequence; a letter by the endpoint's id, a slash and the event's. `not_found` when it is unknown.
   */
  get(kind: CauseKind, id: string, options?: CauseGraphOptions): Promise<CauseGraph>;
  /** Cancels a run and the runs that it led to; `over` counts those that had ended. */
  cancelSubtree(
    runId: string,
    options?: { reason?: string },
  ): Promise<{ cancelled: string[]; over: number; hidden: number; truncated: boolean }>;
}

export interface RunSignal {
  /** Counts the run's signals from 1. */
  number: number;
  name: string;
  state: "taken" | "kept";
  /** Of one that is kept, if it has at most 4,096 characters: the step that takes it has it as its output. */
  data?: unknown;
  sentBy: string;
  sentAt: string;
  takenAt?: string;
  /** The step that took it. */
  stepId?: string;
}

export interface RunSignals {
  signals: RunSignal[];
  /** How many of the run's signals no step has taken. */
  kept: number;
  hasMore: boolean;
}

/** What a handler wrote to an output, and where it stands. */
export interface OutputChunk<Data = unknown> {
  index: number;
  /** Of the run. */
  attempt: number;
  data: Data;
  /** It was tried again since, and counts no more: only with `superseded: true`. */
  superseded?: true;
}

export interface OutputOptions {
  /** Index of the first chunk; default 0. */
  from?: number;
  /** Also what was tried again; default false. */
  superseded?: boolean;
  /** What was read of it is tried again: chunks from `from` to before `until` count no more. */
  onSuperseded?: (gone: { from: number; until: number }) => void;
  signal?: AbortSignal;
}

export interface RunOutput {
  name: string;
  /** With those that are superseded. */
  chunks: number;
  bytes: number;
  /** The end of what counts, as text. */
  tail: string;
}

/** What runs are told, by name, and what they tell while they go on. */
export interface RunWordCalls extends RunErasureCalls {
  /**
   * Tells a run something by a name: `taken` by a step that waits for it (`step.waitForSignal`), else
   * `kept` for the next one. A second call with the same key sends no second signal.
   */
  signal(
    runId: string,
    name: string,
    data?: unknown,
    options?: { idempotencyKey?: string },
  ): Promise<"taken" | "kept">;
  /** What was sent to a run, newest first; `before` is the last `number` of the page before. */
  signals(runId: string, options?: { limit?: number; before?: number }): Promise<RunSignals>;
  /**
   * What a handler writes to `run.output(name)`, from the beginning and then as it is written, to the end of
   * the run. It reads on by itself where a connection ends. Throws SvcError for a run that is not there.
   */
  output<Data = unknown>(
    runId: string,
    name: string,
    options?: OutputOptions,
  ): AsyncGenerator<OutputChunk<Data>, void, void>;
  /** Gives a pinned run to another deployment: the newest that serves its function, or the named one. */
  move(runId: string, options?: { deployment?: string }): Promise<Run>;
  /** The outputs of a run. */
  outputs(runId: string): Promise<RunOutput[]>;
}
