import type {
  ProjectionCalls,
  ProjectionProgress,
  ProjectionWaitOptions,
  ReadModelStatus,
  RebuildProgress,
  RegisteredProjection,
  WaitOutcome,
  WhichProjection,
} from "../projections/projection-types.ts";
import type { SubscribeCalls } from "../subscriptions/subscription-types.ts";
import { timeoutNames, withUnits } from "../wire/duration.ts";
import { SvcError } from "../wire/errors.ts";
import { all, count, fieldsOf, type Message, payload, query, text } from "../wire/read.ts";
import { once, safe } from "../wire/retry.ts";
import type { Transport } from "../wire/transport.ts";

const waitMsDefault = 30_000;
/** A wait is answered when its time is over; the call lives a little longer. */
const waitSlackMs = 10_000;

const nameOf = (projection: WhichProjection): string =>
  typeof projection === "string" ? projection : projection.name;

/** Both words of the server for one that runs. */
const statusOf = (word: unknown): ReadModelStatus =>
  word === "running" ? "active" : (text(word) as ReadModelStatus);

const readRegistered = (message: Message): RegisteredProjection => ({
  name: text(message.name),
  mode: (message.type === "sql" ? "sql" : text(message.mode)) as RegisteredProjection["mode"],
  status: statusOf(message.status),
  events: (message.events ?? []) as string[],
  partitionKey: text(message.partitionKey),
  version: count(message.versionFull ?? message.version),
  sequence: count(message.lastEventSeq),
  ...(text(message.errorMessage) !== "" && { errorMessage: text(message.errorMessage) }),
  ...(text(message.description) !== "" && { description: text(message.description) }),
  createdAt: text(message.createdAt),
  updatedAt: text(message.updatedAt),
});

function readProgress(message: Message): ProjectionProgress {
  const building = count(message.buildingGeneration);
  return {
    name: text(message.name),
    status: statusOf(message.status),
    mode: text(message.mode),
    version: count(message.version),
    sequence: count(message.lastEventSeq),
    lag: count(message.lag),
    ...(text(message.errorMessage) !== "" && {
      error: {
        message: text(message.errorMessage),
        eventId: text(message.errorEventId),
        sequence: count(message.errorEventSeq),
        partition: text(message.errorPartition),
      },
    }),
    ...(building > 0 && { building: { generation: building, sequence: count(message.buildingSeq) } }),
    updatedAt: text(message.updatedAt),
  };
}

/** `"1.500s"` */
const millisOf = (duration: unknown): number => Math.round(Number.parseFloat(text(duration)) * 1_000);

function readRebuild(message: Message): RebuildProgress {
  const { estimatedRemaining } = message;
  return {
    id: text(message.jobId),
    status: text(message.status) as RebuildProgress["status"],
    strategy: text(message.strategy) as RebuildProgress["strategy"],
    eventsProcessed: count(message.eventsProcessed),
    totalEvents: count(message.totalEvents),
    progress: count(message.progress),
    generation: count(message.generation),
    startedAt: text(message.startedAt),
    ...(estimatedRemaining !== undefined && { remainingMs: millisOf(estimatedRemaining) }),
    ...(text(message.error) !== "" && { error: text(message.error) }),
  };
}

const outcomeFields = fieldsOf<WaitOutcome>()({
  ...{ counts: ["behindByEvents"], flags: ["caughtUp", "rebuilding"] },
});
const readOutcome = (message: Message): WaitOutcome => ({
  ...outcomeFields(message),
  ...{ sequence: count(message.currentSeq), target: count(message.targetSeq) },
});

type ProjectionRpc = (
  method: string,
  projection: WhichProjection,
  message: Message,
  options: { repeatable: boolean; timeoutMs?: number; signal?: AbortSignal },
) => Promise<Message>;

export function projectionCalls(
  transport: Transport,
  subscribe: SubscribeCalls["subscribe"],
): ProjectionCalls {
  const call: ProjectionRpc = (method, projection, message, options) =>
    transport.rpc<Message>(`ProjectionService/${method}`, { name: nameOf(projection), ...message }, options);
  return {
    ...readCalls(transport, call),
    ...steerCalls(call),

    subscribe(projection, { partition, ...options } = {}, onUpdate) {
      const place = partition === undefined ? ">" : `${segment(partition)}.updated`;
      const pattern = `system.projection.${nameOf(projection)}.${place}`;
      return subscribe(pattern, options, onUpdate as never) as never;
    },
  };
}

/** As the server writes a partition in a topic. */
const segment = (partition: string): string =>
  partition.replace(/[\s\p{Cc}*>%]/gu, (sign) => (sign === "*" ? "%2A" : encodeURIComponent(sign)));

const readCalls = (
  transport: Transport,
  call: ProjectionRpc,
): Pick<ProjectionCalls, "get" | "partitions" | "wait" | "waitForEvent" | "query" | "list" | "status"> => {
  async function wait(
    method: string,
    projection: WhichProjection,
    message: Message,
    options: ProjectionWaitOptions,
  ): Promise<WaitOutcome> {
    const given = withUnits("wait", options, timeoutNames);
    const { partition = "", timeoutMs = waitMsDefault, signal } = given;
    const body = { ...message, partition, timeout: `${timeoutMs / 1_000}s` };
    const how = { ...safe, timeoutMs: timeoutMs + waitSlackMs, ...(signal && { signal }) };
    return readOutcome(await call(method, projection, body, how));
  }
  return {
    async get(projection, { partition = "", asOf } = {}) {
      const at = asOf === undefined ? {} : { asOf: new Date(asOf).toISOString() };
      const found = await call("GetProjection", projection, { partition, ...at }, safe);
      const sequence = count(found.stateLastEventSeq);
      const times = {
        ...(text(found.lastEventId) !== "" && { lastEventId: text(found.lastEventId) }),
        ...(found.lastEventTime !== undefined && { lastEventTime: text(found.lastEventTime) }),
        ...(found.stateUpdatedAt !== undefined && { updatedAt: text(found.stateUpdatedAt) }),
      };
      return {
        partition: text(found.partition),
        state: sequence > 0 ? (payload(found, "state") as never) : undefined,
        sequence,
        ...times,
        projection: readRegistered((found.registry ?? {}) as Message),
      };
    },

    async partitions(projection, { search, limit } = {}) {
      const path = `/api/v1/projections/${encodeURIComponent(nameOf(projection))}/partitions`;
      const request = { method: "GET" as const, path: `${path}${query({ q: search, limit })}` };
      return (await transport.call<{ partitions: string[] }>(request, safe)).partitions;
    },

    wait: (projection, sequence, options = {}) =>
      wait("WaitProjectionCatchup", projection, { minSeq: `${sequence}` }, options),
    waitForEvent: (projection, eventId, options = {}) =>
      wait("WaitForEvent", projection, { projection: nameOf(projection), eventId }, options),

    async query(projection, asked = {}) {
      const answer = await call("QuerySQLProjection", projection, { ...asked }, safe);
      const columns = (answer.columns ?? []) as string[];
      const rows = ((answer.rows ?? []) as { values?: unknown[]; typedValues?: unknown[] }[]).map((row) => {
        const values = row.typedValues ?? row.values ?? [];
        return Object.fromEntries(columns.map((column, at) => [column, values[at]])) as never;
      });
      return { rows, columns, totalCount: count(answer.totalCount) };
    },

    async list({ status, ...options } = {}) {
      const message = { ...options, ...(status && { status }) };
      const answer = await transport.rpc<Message>("ProjectionService/ListProjections", message, safe);
      return {
        projections: all(answer.projections, readRegistered),
        totalCount: count(answer.totalCount),
      };
    },

    status: async (projection) => readProgress(await call("GetProjectionStatus", projection, {}, safe)),
  };
};

const steerCalls = (
  call: ProjectionRpc,
): Pick<
  ProjectionCalls,
  "pause" | "resume" | "rebuild" | "rebuildProgress" | "cancelRebuild" | "delete"
> => ({
  async pause(projection) {
    await call("PauseProjection", projection, {}, safe);
  },

  async resume(projection, options = {}) {
    await call("ResumeProjection", projection, { ...options }, once);
  },

  async rebuild(projection, { strategy, ...options } = {}) {
    // One partition can only be rebuilt in place.
    const chosen = strategy ?? (options.partition === undefined ? "side_by_side" : "in_place");
    const answer = await call("RebuildProjection", projection, { strategy: chosen, ...options }, once);
    return readRebuild((answer.job ?? {}) as Message);
  },

  async rebuildProgress(projection) {
    try {
      const answer = await call("GetRebuildJob", projection, {}, safe);
      return readRebuild((answer.job ?? {}) as Message);
    } catch (error) {
      const isNone = error instanceof SvcError && error.code === "not_found";
      if (isNone && !error.message.includes("projection not found")) return undefined;
      throw error;
    }
  },

  async cancelRebuild(projection) {
    await call("CancelRebuild", projection, {}, once);
  },

  async delete(projection) {
    await call("UnregisterProjection", projection, {}, once);
  },
});
