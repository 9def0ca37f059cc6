import type { EventRegistry } from "../steps/events.ts";
import { found, SvcError } from "../wire/errors.ts";
import { dataFields } from "../wire/payload.ts";
import { all, count, fieldsOf, instant, type Message, payload, text } from "../wire/read.ts";
import { safe } from "../wire/retry.ts";
import type { RpcOptions, Transport } from "../wire/transport.ts";
import type { EventMap } from "../wire/types.ts";
import type {
  AppendedEvent,
  AppendTo,
  EntityEvent,
  EntityStream,
  EventToAppend,
  FoldOptions,
  HistoryOfEvent,
  HistoryRun,
  StreamCalls,
} from "./entity-types.ts";

const readAppended = ({ eventId, entityVersion, sequence }: Message): AppendedEvent => ({
  eventId: text(eventId),
  version: count(entityVersion),
  sequence: count(sequence),
});

function readEvent(message: Message): EntityEvent {
  return {
    id: text(message.id),
    name: text(message.name),
    data: payload(message, "data"),
    ...(message.metadata !== undefined && { metadata: message.metadata as Record<string, unknown> }),
    version: count(message.entityVersion),
    schemaVersion: count(message.version),
    timestamp: text(message.timestamp),
    source: text(message.source),
    sequence: count(message.natsSeq),
    ...(message.idempotencyKey !== undefined && { idempotencyKey: text(message.idempotencyKey) }),
    ...(message.runId !== undefined && { runId: text(message.runId) }),
    ...(message.redactedAt !== undefined && { redactedAt: text(message.redactedAt) }),
  };
}

const readInfo: (message: Message) => EntityStream = fieldsOf<EntityStream>()({
  ...{ texts: ["entityId", "entityType", "createdAt", "updatedAt"], counts: ["version"], flags: ["deleted"] },
});

const readHistoryRun = (message: Message): HistoryRun => ({
  runId: text(message.runId),
  functionId: text(message.functionId),
  status: text(message.status),
  ...(message.startedAt !== undefined && { startedAt: text(message.startedAt) }),
  ...(message.endedAt !== undefined && { endedAt: text(message.endedAt) }),
  ...durationOf(message),
  steps: all(message.steps, (step) => ({
    stepId: text(step.stepId),
    name: text(step.name),
    type: text(step.stepType),
    status: text(step.status),
    ...durationOf(step),
    ...(step.errorMessage !== undefined && { errorMessage: text(step.errorMessage) }),
  })),
});

const durationOf = ({ durationMsFull }: Message) =>
  durationMsFull === undefined ? {} : { durationMs: count(durationMsFull) };

const readHistory = (message: Message): HistoryOfEvent => ({
  eventId: text(message.eventId),
  eventName: text(message.eventName),
  data: payload(message, "eventData"),
  version: count(message.entityVersion),
  timestamp: text(message.timestamp),
  source: text(message.source),
  runs: all(message.runs, readHistoryRun),
});

/** Events of one page; fewer where they are large. */
const pageMax = 1_000;
const anyVersion = -1;

/** Undefined for a page with more characters than one answer has. */
async function unlessTooLarge(page: Promise<Message>, limit: number): Promise<Message | undefined> {
  try {
    return await page;
  } catch (error) {
    if (error instanceof SvcError && error.code === "failed_precondition" && limit > 1) return undefined;
    throw error;
  }
}

type StreamRpc = (method: string, message: unknown, options: RpcOptions) => Promise<Message>;

export function streamCalls<Events extends EventMap>(
  transport: Transport,
  registry: EventRegistry<Events> | undefined,
): StreamCalls<Events> {
  const call: StreamRpc = (method, message, options) =>
    transport.rpc<Message>(`EntityStreamService/${method}`, message, options);
  const reads = readCalls(call);
  const kept = keptCalls(call);
  const calls: StreamCalls = {
    ...appendCalls(call, registry as EventRegistry | undefined),
    ...reads,
    ...kept,
    async fold<State>(
      entityId: string,
      reducer: (state: State, event: EntityEvent) => State,
      { initial, snapshotEvery, fromSnapshot = true, ...by }: FoldOptions<State>,
    ) {
      const latest = fromSnapshot ? await reads.snapshot<State>(entityId) : undefined;
      let state = latest ? latest.state : initial;
      let version = latest?.version ?? 0;
      for await (const event of reads.read(entityId, { fromVersion: version + 1, ...by })) {
        state = reducer(state, event);
        version = event.version;
      }
      if (snapshotEvery !== undefined && version - (latest?.version ?? 0) >= snapshotEvery) {
        const entityType = latest?.entityType ?? (await reads.info(entityId))?.entityType;
        if (entityType !== undefined) await kept.createSnapshot({ entityId, entityType, version, state });
      }
      return { state, version };
    },
  };
  return calls as unknown as StreamCalls<Events>;
}

const target = ({ entityId, entityType, expectedVersion = anyVersion }: AppendTo) => ({
  ...{ entityId, entityType, expectedVersion },
});

function appendCalls(
  call: StreamRpc,
  registry: EventRegistry | undefined,
): Pick<StreamCalls, "append" | "appendMany"> {
  async function eventMessage({ event, data, ...rest }: EventToAppend): Promise<Message> {
    const checked = registry ? await registry.check(event, data) : data;
    const version = rest.version ?? registry?.version(event);
    return {
      eventName: event,
      ...dataFields(checked),
      ...(rest.metadata !== undefined && { metadata: rest.metadata }),
      ...(version !== undefined && { version }),
      ...(rest.idempotencyKey !== undefined && { idempotencyKey: rest.idempotencyKey }),
    };
  }
  return {
    async append(given, by = {}) {
      const message = { ...target(given), ...(await eventMessage(given)) };
      const repeatable = given.idempotencyKey !== undefined;
      return readAppended(await call("AppendEvent", message, { repeatable, ...by }));
    },

    async appendMany(list, by = {}) {
      const messages = await Promise.all(
        list.map(async (one) => ({
          ...target(one),
          events: await Promise.all(one.events.map(eventMessage)),
        })),
      );
      const repeatable = list.every((one) =>
        one.events.every(({ idempotencyKey }) => idempotencyKey !== undefined),
      );
      const answer = await call("AppendEvents", { streams: messages }, { repeatable, ...by });
      return all(answer.results, readAppended);
    },
  };
}

const readCalls = (
  call: StreamRpc,
): Pick<StreamCalls, "read" | "info" | "list" | "snapshot" | "history"> => ({
  async *read(entityId, { fromVersion, limit, direction = "forward", ...options } = {}) {
    let from = fromVersion ?? 0;
    let left = limit ?? Number.POSITIVE_INFINITY;
    let size = pageMax;
    const pageFrom = async (fromVersion: number) => {
      const range = { entityId, direction, fromVersion, limit: Math.min(left, size) };
      const page = await unlessTooLarge(call("ReadStream", range, { ...safe, ...options }), range.limit);
      if (!page) size = Math.max(1, Math.floor(range.limit / 4));
      return page;
    };
    let ahead: ReturnType<typeof pageFrom> | undefined;
    for (let pages = 0; left > 0; ) {
      const page = await (ahead ?? pageFrom(from));
      ahead = undefined;
      if (!page) continue;
      const events = (page.events ?? []) as Message[];
      left -= events.length;
      from = count(page.nextVersion);
      // Who comes to a second page reads on: the next one is on its way while this one is looked at.
      if (pages++ > 0 && from !== 0 && left > 0) {
        ahead = pageFrom(from);
        // It may fail before it is asked for, or be asked for never.
        ahead.catch(() => {});
      }
      for (const event of events) yield readEvent(event);
      if (from === 0) return;
    }
  },

  async info(entityId) {
    const message = await found(call("GetStreamInfo", { entityId }, safe));
    return message && readInfo(message);
  },

  async list(options = {}) {
    const answer = await call("ListStreams", options, safe);
    return {
      streams: all(answer.streams, readInfo),
      ...(answer.nextCursor ? { nextCursor: text(answer.nextCursor) } : {}),
      totalCount: count(answer.totalCount),
      ...(answer.truncated ? { truncated: true, scanned: count(answer.scanned) } : {}),
    };
  },

  async snapshot<State>(entityId: string, { beforeVersion = 0 } = {}) {
    const message = await found(call("GetSnapshot", { entityId, beforeVersion }, safe));
    return (
      message && {
        snapshotId: text(message.snapshotId),
        entityType: text(message.entityType),
        version: count(message.entityVersion),
        state: payload(message, "state") as State,
        createdAt: text(message.createdAt),
      }
    );
  },

  async history(entityId, { since, until, ...range } = {}) {
    const answer = await call(
      "GetEntityHistory",
      {
        ...{ entityId, ...range },
        ...(since !== undefined && { fromTimestamp: instant(since) }),
        ...(until !== undefined && { toTimestamp: instant(until) }),
      },
      safe,
    );
    const next = count(answer.nextCursor);
    return {
      entries: all(answer.entries, readHistory),
      ...(next > 0 && { nextVersion: next }),
    };
  },
});

const keptCalls = (call: StreamRpc): Pick<StreamCalls, "createSnapshot" | "delete" | "redact"> => ({
  async createSnapshot({ entityId, entityType, version, state }) {
    // A second snapshot of a version replaces the first.
    const message = { entityId, entityType, entityVersion: version, stateValue: state ?? null };
    return { snapshotId: text((await call("CreateSnapshot", message, safe)).snapshotId) };
  },

  async delete(entityId, options = {}) {
    await call("DeleteStream", { entityId, ...options }, safe);
  },

  async redact(entityId, eventId) {
    await call("RedactEvent", { entityId, eventId }, safe);
  },
});
