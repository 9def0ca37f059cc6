import type { EventRegistry } from "../steps/events.ts";
import { durationMs, requireMs, timeoutNames, withUnits } from "../wire/duration.ts";
import { type KnownOptions, requireKnown } from "../wire/known-options.ts";
import { dataFields } from "../wire/payload.ts";
import { instant, type Message, query, readEmitted, readResult } from "../wire/read.ts";
import { once, safe, timerMsMax } from "../wire/retry.ts";
import type { Transport } from "../wire/transport.ts";
import type { DelayedEventRecord, EmitOptions, EventMap, EventRecord } from "../wire/types.ts";
import type { EventCalls, SyncOptions } from "./client-types.ts";
import { openEmits, openPublishes } from "./emits-together.ts";

const emitBatchMax = 100;
export const knownOfEmit: KnownOptions<Omit<EmitOptions, "traceparent">> = {
  ...{ idempotencyKey: true, metadata: true, version: true, delay: true, at: true },
};
const known: KnownOptions<EmitOptions> = { ...knownOfEmit, traceparent: true };
const knownOfOne = { event: true, data: true, ...known } as const;
const knownOfPublish = { idempotencyKey: true } as const;
const knownOfSync: KnownOptions<SyncOptions> = {
  ...{ idempotencyKey: true, metadata: true, traceparent: true, signal: true },
  ...timeoutNames,
};
/** The answer is to tell what no worker serves. */
const told = { tellUnserved: true };
/** How much longer than the server a call waits for a synchronous answer. */
export const syncSlackMs = 5_000;
const syncMsDefault = 30_000;

/** Options of a synchronous call, with its default. */
export function syncOptions(
  what: string,
  options: SyncOptions,
): Omit<SyncOptions, "timeout"> & { timeoutMs: number } {
  requireKnown(what, options, knownOfSync);
  const { timeoutMs = syncMsDefault, ...given } = withUnits(what, options, timeoutNames, { endless: true });
  return { timeoutMs, ...given };
}

/** How long the server is asked to wait: whole milliseconds. Throws TypeError for what is no number. */
export const waitedMs = (timeoutMs: number): number =>
  Math.min(Math.round(requireMs("timeoutMs", timeoutMs)), timerMsMax);

/** The fields that say when an event is emitted. */
export const whenFields = ({ delay, at }: Pick<EmitOptions, "delay" | "at">): Message => ({
  ...(delay !== undefined && { delayMs: durationMs(delay, "delay") }),
  ...(at !== undefined && { at: instant(at) }),
});

/** Of several events in one request, each may be part of another trace: it goes with the event. */
const tracedAlone = ({ traceparent, metadata, ...rest }: EmitOptions): EmitOptions => ({
  ...rest,
  ...(traceparent === undefined ? metadata && { metadata } : { metadata: { ...metadata, traceparent } }),
});

export function eventCalls<Events extends EventMap>(
  transport: Transport,
  registry: EventRegistry<Events> | undefined,
): EventCalls<Events> {
  const get = <Answer>(path: string) => transport.call<Answer>({ method: "GET", path }, safe);

  const emit = openEmits(transport);
  const publish = openPublishes(transport);

  async function message(event: string, data: unknown, options: EmitOptions): Promise<Message> {
    const checked = registry ? await registry.check(event, data) : data;
    const version = options.version ?? registry?.version(event);
    return {
      event,
      ...dataFields(checked),
      ...(options.idempotencyKey !== undefined && { idempotencyKey: options.idempotencyKey }),
      ...(options.metadata !== undefined && { metadata: options.metadata }),
      ...(version !== undefined && { version }),
      ...whenFields(options),
    };
  }

  return {
    async emit(event, data, given = {}) {
      requireKnown("emit", given, known);
      const { traceparent = transport.traceparent?.(), idempotencyKey, delay, at } = given;
      return readEmitted(
        await emit({
          message: { ...(await message(event, data, given)), ...told },
          ...{ traceparent, repeatable: idempotencyKey !== undefined },
          isDelayed: delay !== undefined || at !== undefined,
        }),
      );
    },

    async emitMany(events) {
      // Checked as a whole before anything is sent.
      for (const [at, one] of events.entries()) requireKnown(`emitMany: [${at}]`, one, knownOfOne);
      const messages = await Promise.all(events.map((one) => message(one.event, one.data, tracedAlone(one))));
      const emitted = [];
      for (let at = 0; at < events.length; at += emitBatchMax) {
        const batch = events.slice(at, at + emitBatchMax);
        const repeatable = batch.every((one) => one.idempotencyKey !== undefined);
        const answer = await transport.rpc<{ results?: Message[] }>(
          "SvcService/TriggerBatch",
          { events: messages.slice(at, at + emitBatchMax).map((one) => ({ ...one, ...told })) },
          { repeatable },
        );
        for (const result of answer.results ?? []) emitted.push(readEmitted(result));
      }
      return emitted;
    },

    async triggerSync(event, data, options = {}) {
      const { timeoutMs, signal, traceparent, ...given } = syncOptions("triggerSync", options);
      const body = { ...(await message(event, data, given)), timeoutMs: waitedMs(timeoutMs) };
      const repeatable = given.idempotencyKey !== undefined;
      const answer = await transport.rpc<{ eventId?: string; results?: Message[] }>(
        "SvcService/TriggerSync",
        body,
        { repeatable, timeoutMs: timeoutMs + syncSlackMs, signal, traceparent },
      );
      return { eventId: answer.eventId ?? "", results: (answer.results ?? []).map(readResult) };
    },

    async publish(topic, data, options = {}) {
      requireKnown("publish", options, knownOfPublish);
      const { idempotencyKey } = options;
      const body = { topic, ...dataFields(data), ...(idempotencyKey !== undefined && { idempotencyKey }) };
      const { eventId, sequence } = await publish({
        message: body,
        repeatable: idempotencyKey !== undefined,
      });
      return { eventId: String(eventId), sequence: Number(sequence ?? 0) };
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
      async delayed(given = {}) {
        const page = await get<{ events: DelayedEventRecord[]; next_cursor?: string }>(
          `/api/v1/delayed-events${query(given)}`,
        );
        return { events: page.events, ...(page.next_cursor && { nextCursor: page.next_cursor }) };
      },
      async cancelDelayed(id) {
        const path = `/api/v1/delayed-events/${encodeURIComponent(id)}`;
        await transport.call({ method: "DELETE", path }, once);
      },
      async redact(eventId, { reason = "" } = {}) {
        const message = { eventId, reason };
        const answer = await transport.rpc<{ redactedAt?: string }>("SvcService/RedactEvent", message, safe);
        return { redactedAt: answer.redactedAt ?? "" };
      },
    },
  };
}
