import type { CreateProjection, ProjectionCalls } from "../projections/projection-types.ts";
import type { FunctionOptions, Handler } from "../steps/function.ts";
import type { SvcFunction } from "../steps/svc-function.ts";
import type { GroupCalls, SubscribeCalls } from "../subscriptions/subscription-types.ts";
import type { TimeoutOption } from "../wire/duration.ts";
import type { ErrorCalls } from "../wire/error-types.ts";
import type { Jsonify } from "../wire/jsonify.ts";
import type { HistoryEntry, PausedState, PreviewedStep, RunResult, Secret } from "../wire/read.ts";
import type { Transport } from "../wire/transport.ts";
import type {
  DelayedEventRecord,
  EmitOptions,
  Emitted,
  EventMap,
  EventRecord,
  FunctionStatus,
  Published,
  RegisteredDefinition,
  RegisteredFunction,
  Run,
  RunLogs,
  Step,
} from "../wire/types.ts";
import type { SqlCalls } from "./client-sql.ts";
import type { SchemaCalls, StreamCalls } from "./entity-types.ts";
import type { ConfigCalls, KvCalls } from "./kv-types.ts";
import type { CausalityCalls, RepairCalls, RepairSelection, RunWordCalls } from "./repair-types.ts";
import type { ToolCalls } from "./tool-types.ts";
import type { AlertCalls, WebhookCalls } from "./webhook-types.ts";

export interface ListRunsOptions extends RepairSelection {
  /** By an attribute in place of newest first; runs without it are left out. */
  orderBy?: { name: string; ascending?: boolean };
  /** Default 20, at most 200. */
  limit?: number;
  /** `nextCursor` of the page before. */
  cursor?: string;
}

export interface RunsFound {
  runs: Run[];
  nextCursor?: string;
  /** At most 10,000. */
  totalCount: number;
  /** There may be more than were counted. */
  totalCountCapped?: boolean;
  /** The page ended because `scanned` runs had been looked at. */
  truncated?: boolean;
  scanned?: number;
}

export interface EventToEmit<Events extends EventMap = EventMap> extends EmitOptions {
  event: keyof Events & string;
  data: Events[keyof Events];
}

export interface ListEventsOptions {
  /** Part of a name. */
  name?: string;
  /** Exact names, at most 200. */
  names?: string[];
  source?: string[];
  since?: Date | string;
  until?: Date | string;
  /** Default 20, at most 200. */
  limit?: number;
  cursor?: string;
  before?: string;
}

export interface EventPage {
  events: EventRecord[];
  nextCursor?: string;
  prevCursor?: string;
}

export interface InvokeFunctionOptions {
  /** A second call with the same key within 24 hours returns the first run. */
  idempotencyKey?: string;
  /** Where the trace stands that the run is part of. Default: the connection's `traceparent`. */
  traceparent?: string | undefined;
}

/** `timeout` is how long the server waits for the runs to end. Default 30 s. */
export interface SyncOptions extends TimeoutOption {
  idempotencyKey?: string;
  metadata?: Record<string, unknown>;
  /** As of an emit. */
  traceparent?: string | undefined;
  /** A call that is aborted cancels the run that it started. */
  signal?: AbortSignal;
}

/** Events and the runs they start. */
export interface EventCalls<Events extends EventMap = EventMap> {
  /** Stores an event and starts the runs of the functions it triggers; once this resolves both are durable */
  emit<Name extends keyof Events & string>(
    event: Name,
    data: Events[Name],
    options?: EmitOptions,
  ): Promise<Emitted>;
  /** Hundreds at a time: batches of 100 in order, each all or nothing. The results are in the order given. */
  emitMany(events: readonly EventToEmit<Events>[]): Promise<Emitted[]>;
  /** Emits and waits until the runs it started have ended, or `timeout`; the others say `waitTimedOut`. */
  triggerSync<Name extends keyof Events & string>(
    event: Name,
    data: Events[Name],
    options?: SyncOptions,
  ): Promise<{ eventId: string; results: RunResult[] }>;
  /** Puts a message on a topic; it starts nothing. */
  publish(topic: string, data: unknown, options?: { idempotencyKey?: string }): Promise<Published>;
  readonly events: {
    list(options?: ListEventsOptions): Promise<EventPage>;
    get(id: string): Promise<EventRecord>;
    /** Names with how often they occur among the newest 10,000 events. */
    names(): Promise<{ name: string; count: number }[]>;
    /** Events that are emitted later, by their time. */
    delayed(options?: { limit?: number; cursor?: string }): Promise<{
      events: DelayedEventRecord[];
      nextCursor?: string;
    }>;
    /** Throws once its time has come. */
    cancelDelayed(id: string): Promise<void>;
    /** Overwrites the payload of any event, for good; the reason is for the audit. */
    redact(id: string, options?: { reason?: string }): Promise<{ redactedAt: string }>;
  };
}

/** Functions: their definitions, their history, and starting them directly. */
export interface FunctionCalls<Events extends EventMap = EventMap> {
  /** `createFunction` with this client's event types. */
  createFunction<Name extends keyof Events & string, Output = unknown>(
    options: FunctionOptions<Name, Events[Name], Events>,
    handler: Handler<Events[Name], Name, Events, Output>,
  ): SvcFunction<Events[Name], Output>;
  /** Takes wire names (`timeoutMs`), as `createFunction(…).definition`; `definitionHash` identifies it. */
  registerFunction(
    definition: RegisteredDefinition,
  ): Promise<{ function: RegisteredFunction; created: boolean; definitionHash?: string }>;
  /** By id or slug. */
  getFunction(id: string): Promise<RegisteredFunction>;
  listFunctions(options?: { status?: FunctionStatus; limit?: number }): Promise<RegisteredFunction[]>;
  updateFunctionStatus(id: string, status: FunctionStatus): Promise<RegisteredFunction>;
  deleteFunction(id: string): Promise<void>;
  /** The changes of a definition, newest first; `fromVersion` is the previous page's last `entityVersion`. */
  listFunctionHistory(
    functionId: string,
    options?: { limit?: number; fromVersion?: number },
  ): Promise<{ entries: HistoryEntry[]; hasMore: boolean }>;
  /** By `entityVersion` of the history. */
  getFunctionAtVersion(functionId: string, version: number): Promise<HistoryEntry>;
  rollbackFunction(
    functionId: string,
    version: number,
    options?: { changeReason?: string },
  ): Promise<RegisteredFunction>;
  /** Starts a function without event triggers. */
  invokeFunction<Input>(
    target: SvcFunction<Input> | string,
    data: NoInfer<Input>,
    options?: InvokeFunctionOptions,
  ): Promise<{ runId: string; eventId: string }>;
  /** The same, and waits for its end, or `timeout`: then `waitTimedOut` is true and the run continues. */
  invokeFunctionSync<Input, Output = unknown>(
    target: SvcFunction<Input, Output> | string,
    data: NoInfer<Input>,
    options?: SyncOptions,
  ): Promise<RunResult<Jsonify<Output>>>;
}

/** Runs: reading and steering them. */
export interface RunCalls {
  /** `withAttempts`: with `attemptLog`. */
  getRun(id: string, options?: { withAttempts?: boolean }): Promise<Run>;
  /** Newest first. A page may be short: the list ends where `nextCursor` is missing. */
  listRuns(options?: ListRunsOptions): Promise<RunsFound>;
  /** `withTries`: each with its `tryLog`. */
  getRunSteps(runId: string, options?: { withTries?: boolean }): Promise<Step[]>;
  /** What its handler wrote; `after` is the cursor of an earlier answer. */
  getRunLogs(runId: string, options?: { after?: string }): Promise<RunLogs>;
  /** The run once it has ended. SvcError `deadline_exceeded` after `timeout` (default 30 s). */
  waitForRun(runId: string, options?: TimeoutOption & { signal?: AbortSignal }): Promise<Run>;
  /**
   * Ends a run. Its handler, if it is under way, sees `signal` raised. A run that has something to undo is
   * undone first (`phase`), unless its function says `compensateOnCancel: false`.
   */
  cancelRun(id: string, options?: { reason?: string }): Promise<Run>;
  /** Holds a run: at once when nothing executes it, else (`pause_requested`) at its worker's next report. */
  pauseRun(runId: string): Promise<"paused" | "pause_requested">;
  getPausedState(runId: string): Promise<PausedState>;
  /** Gives a step of a held run another output. Step: the row's id or the SDK's. */
  injectStepOutput(
    runId: string,
    stepId: string,
    output: unknown,
    options?: { reason?: string },
  ): Promise<{ stepId: string; previousOutput: unknown }>;
  /** Gives a completed or failed step another output; the first one stays on record. */
  patchStep(stepId: string, output: unknown, options?: { reason?: string }): Promise<Step>;
  /**
   * Continues a held or failed run, a sleep or a wait until its deadline; with `fromStep` that step and all
   * later ones are executed again, as what was undone is in any case. `skipSleep` ends the sleep that the run
   * is in: of several the one that is over first, or that of `stepId`.
   */
  resumeRun(
    runId: string,
    options?: { fromStep?: string; skipSleep?: boolean; stepId?: string },
  ): Promise<Run>;
  /** What `resumeRun` would do with each stored step, in order; changes nothing. */
  previewResume(runId: string, options?: { fromStep?: string }): Promise<PreviewedStep[]>;
}

/** Secrets of the environment. The server never gives out a value; functions that name a secret get it. */
export interface SecretCalls {
  list(): Promise<Secret[]>;
  get(name: string): Promise<Secret>;
  create(name: string, value: string, options?: { description?: string }): Promise<Secret>;
  /** A new value. */
  set(name: string, value: string, options?: { description?: string }): Promise<Secret>;
  update(name: string, change: { name?: string; description?: string }): Promise<Secret>;
  delete(name: string): Promise<void>;
}

/**
 * Calls to one server. Every method throws SvcError; reads and calls with an idempotency key are tried three
 * times (100 ms, doubling), others only when the server certainly did not do them. See retry.ts.
 */
export interface Client<Events extends EventMap = EventMap>
  extends EventCalls<Events>,
    FunctionCalls<Events>,
    RunCalls,
    SqlCalls,
    SubscribeCalls<Events> {
  readonly transport: Transport;
  /** `createProjection` with this client's event types. */
  readonly createProjection: CreateProjection<Events>;
  readonly alerts: AlertCalls;
  readonly causality: CausalityCalls;
  readonly errors: ErrorCalls;
  readonly repairs: RepairCalls;
  readonly config: ConfigCalls;
  readonly groups: GroupCalls;
  readonly kv: KvCalls;
  readonly projections: ProjectionCalls;
  readonly runs: RunWordCalls;
  readonly schemas: SchemaCalls;
  readonly secrets: SecretCalls;
  readonly streams: StreamCalls<Events>;
  readonly tools: ToolCalls;
  readonly webhooks: WebhookCalls;
  /**
   * Where the last write is that this connection knows of: emitted, appended, invoked, or a job's event of
   * its worker. Another process hands it to `consistent` to read what was written here. Undefined for none.
   */
  sequence(): string | undefined;
  /**
   * A client over the same connection whose reads show at least all that was written over it, whichever node
   * answers: reads of projections wait until they have come there. With `after`, also what another client
   * wrote. A read that would wait too long throws `unavailable`; `failed_precondition` says that the log was
   * restored since, and later reads wait for nothing older.
   */
  consistent(options?: { after?: string | undefined }): Client<Events>;
  /** Needs no key. Throws when the server is not well. */
  health(): Promise<{ status: string; [field: string]: unknown }>;
  /** The server's version and what it is doing. */
  info(): Promise<{ version: string; [field: string]: unknown }>;
}
