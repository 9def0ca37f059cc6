import { SvcError } from "./errors.ts";
import { createFunction, type FunctionOptions, type Handler, type SvcFunction } from "./function.ts";
import { type Message, readEmitted, readFunction, readRun, readStep } from "./read.ts";
import { pause } from "./retry.ts";
import { type ConnectionOptions, createTransport, type Transport } from "./transport.ts";
import type {
  EmitOptions,
  Emitted,
  EventMap,
  EventRecord,
  FunctionDefinition,
  FunctionStatus,
  RegisteredFunction,
  Run,
  RunStatus,
  Step,
} from "./types.ts";

export interface ListRunsOptions {
  functionId?: string;
  eventId?: string;
  statuses?: RunStatus[];
  search?: string;
  since?: Date | string;
  until?: Date | string;
  /** Default 20, at most 200. */
  limit?: number;
  /** `nextCursor` of the page before. */
  cursor?: string;
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

/** Calls to one server. Every method throws SvcError; reads and keyed emits are tried three times, see retry.ts. */
export interface Client<Events extends EventMap = EventMap> {
  readonly transport: Transport;
  /** Stores an event and starts the runs of the functions it triggers; once this resolves both are durable. */
  emit<Name extends keyof Events & string>(
    event: Name,
    data: Events[Name],
    options?: EmitOptions,
  ): Promise<Emitted>;
  /** Hundreds at a time: batches of 100 in order, each all or nothing. Answers in the order given. */
  emitMany(events: readonly EventToEmit<Events>[]): Promise<Emitted[]>;
  /** `createFunction` with this client's event types. */
  createFunction<Name extends keyof Events & string>(
    options: FunctionOptions<Name>,
    handler: Handler<Events[Name], Name>,
  ): SvcFunction;
  registerFunction(
    definition: FunctionDefinition,
  ): Promise<{ function: RegisteredFunction; created: boolean }>;
  /** By id or slug. */
  getFunction(id: string): Promise<RegisteredFunction>;
  listFunctions(options?: { status?: FunctionStatus; limit?: number }): Promise<RegisteredFunction[]>;
  updateFunctionStatus(id: string, status: FunctionStatus): Promise<RegisteredFunction>;
  deleteFunction(id: string): Promise<void>;
  getRun(id: string): Promise<Run>;
  /** Newest first. `totalCount` is capped at 10,000. */
  listRuns(options?: ListRunsOptions): Promise<{ runs: Run[]; nextCursor?: string; totalCount: number }>;
  getRunSteps(runId: string): Promise<Step[]>;
  /** The run once it has ended. SvcError `deadline_exceeded` after `timeoutMs` (default 30,000). */
  waitForRun(runId: string, options?: { timeoutMs?: number; signal?: AbortSignal }): Promise<Run>;
  readonly events: {
    list(options?: ListEventsOptions): Promise<EventPage>;
    get(id: string): Promise<EventRecord>;
    /** Names with how often they occur among the newest 10,000 events. */
    names(): Promise<{ name: string; count: number }[]>;
  };
  /** Needs no key. Throws when the server is not well. */
  health(): Promise<{ status: string; [field: string]: unknown }>;
}

const emitBatchMax = 100;
const waitFirstMs = 25;
const waitMsMax = 1_000;
const safe = { repeatable: true };
const once = { repeatable: false };
const ended = new Set<RunStatus>(["completed", "failed", "cancelled"]);

const isObject = (value: unknown) => typeof value === "object" && value !== null && !Array.isArray(value);

function emitMessage(event: string, data: unknown, options: EmitOptions): Message {
  return {
    event,
    ...(isObject(data) ? { data } : { dataValue: data ?? null }),
    ...(options.idempotencyKey !== undefined && { idempotencyKey: options.idempotencyKey }),
    ...(options.metadata !== undefined && { metadata: options.metadata }),
    ...(options.version !== undefined && { version: options.version }),
  };
}

const instant = (value: Date | string): string => (typeof value === "string" ? value : value.toISOString());

function query(values: Record<string, string | number | readonly string[] | undefined>): string {
  const given = Object.entries(values).filter(([, value]) => value !== undefined);
  return given.length === 0
    ? ""
    : `?${new URLSearchParams(given.map(([name, value]) => [name, String(value)]))}`;
}

/** A client of one server and environment. Costs nothing until its first call; needs no closing. */
export function createClient<Events extends EventMap = EventMap>(
  options: ConnectionOptions = {},
): Client<Events> {
  const transport = createTransport(options);
  const get = <Answer>(path: string) => transport.call<Answer>({ method: "GET", path }, safe);

  const client: Client<Events> = {
    transport,

    async emit(event, data, given = {}) {
      const repeatable = given.idempotencyKey !== undefined;
      return readEmitted(
        await transport.rpc("SvcService/Emit", emitMessage(event, data, given), { repeatable }),
      );
    },

    async emitMany(events) {
      const emitted: Emitted[] = [];
      for (let at = 0; at < events.length; at += emitBatchMax) {
        const batch = events.slice(at, at + emitBatchMax);
        const message = { events: batch.map((one) => emitMessage(one.event, one.data, one)) };
        const repeatable = batch.every((one) => one.idempotencyKey !== undefined);
        const answer = await transport.rpc<{ results?: Message[] }>("SvcService/TriggerBatch", message, {
          repeatable,
        });
        for (const result of answer.results ?? []) emitted.push(readEmitted(result));
      }
      return emitted;
    },

    createFunction: (given, handler) => createFunction(given, handler),

    async registerFunction(definition) {
      // Registering the same definition twice changes nothing, so the call may be repeated.
      const message = { preferredMode: "EXECUTION_MODE_PULL", ...definition };
      const answer = await transport.rpc<{ function?: Message; created?: boolean }>(
        "SvcService/RegisterFunction",
        message,
        safe,
      );
      return { function: readFunction(answer.function ?? {}), created: answer.created === true };
    },

    getFunction: async (id) => readFunction(await transport.rpc("SvcService/GetFunction", { id }, safe)),

    async listFunctions({ status, limit } = {}) {
      const answer = await transport.rpc<{ functions?: Message[] }>(
        "SvcService/ListFunctions",
        {
          ...(status && { status: `FUNCTION_STATUS_${status.toUpperCase()}` }),
          ...(limit !== undefined && { limit }),
        },
        safe,
      );
      return (answer.functions ?? []).map(readFunction);
    },

    async updateFunctionStatus(id, status) {
      const message = { id, status: `FUNCTION_STATUS_${status.toUpperCase()}` };
      return readFunction(await transport.rpc("SvcService/UpdateFunctionStatus", message, once));
    },

    async deleteFunction(id) {
      await transport.rpc("SvcService/DeleteFunction", { id }, once);
    },

    getRun: async (id) => readRun(await transport.rpc("SvcService/GetRun", { id }, safe)),

    async listRuns({ statuses, since, until, ...given } = {}) {
      const message = {
        ...given,
        ...(statuses && { statuses: statuses.map((status) => `RUN_STATUS_${status.toUpperCase()}`) }),
        ...(since !== undefined && { since: instant(since) }),
        ...(until !== undefined && { until: instant(until) }),
      };
      const answer = await transport.rpc<{ runs?: Message[]; nextCursor?: string; totalCount?: number }>(
        "SvcService/ListRuns",
        message,
        safe,
      );
      return {
        runs: (answer.runs ?? []).map(readRun),
        totalCount: answer.totalCount ?? 0,
        ...(answer.nextCursor && { nextCursor: answer.nextCursor }),
      };
    },

    async getRunSteps(runId) {
      const answer = await transport.rpc<{ steps?: Message[] }>("SvcService/GetRunSteps", { runId }, safe);
      return (answer.steps ?? []).map(readStep);
    },

    async waitForRun(runId, { timeoutMs = 30_000, signal } = {}) {
      const deadline = Date.now() + timeoutMs;
      for (let waitMs = waitFirstMs; ; waitMs = Math.min(waitMs * 1.5, waitMsMax)) {
        const run = await client.getRun(runId);
        if (ended.has(run.status)) return run;
        const leftMs = deadline - Date.now();
        if (signal?.aborted) throw new SvcError("aborted_by_caller", `waiting for run ${runId} was given up`);
        if (leftMs <= 0) {
          throw new SvcError("deadline_exceeded", `run ${runId} is ${run.status} after ${timeoutMs} ms`);
        }
        await pause(Math.min(waitMs, leftMs), signal);
      }
    },

    events: {
      async list({ since, until, ...given } = {}) {
        const page = await get<{
          events: EventRecord[];
          next_cursor?: string | null;
          prev_cursor?: string | null;
        }>(
          `/api/v1/events${query({ ...given, since: since && instant(since), until: until && instant(until) })}`,
        );
        return {
          events: page.events,
          ...(page.next_cursor && { nextCursor: page.next_cursor }),
          ...(page.prev_cursor && { prevCursor: page.prev_cursor }),
        };
      },
      get: (id) => get(`/api/v1/events/${encodeURIComponent(id)}`),
      names: async () =>
        (await get<{ names: { name: string; count: number }[] }>("/api/v1/events/names")).names,
    },

    health: () => get("/health"),
  };
  return client;
}
