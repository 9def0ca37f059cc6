import { type Static, Type } from "@sinclair/typebox";
import {
  actionsThatShow,
  allThingsOf,
  namesOfEvent,
  screenOfKinds,
  thingsOfEvent,
} from "../../../gate/things.ts";
import { PubSubService } from "../../../gen/svc/v1/pubsub_pb.ts";
import { SvcService } from "../../../gen/svc/v1/svc_pb.ts";
import { starterOf } from "../../../kit/caller.ts";
import { rfc3339 } from "../../../kit/clock.ts";
import { valueBytes } from "../../../kit/cut-values.ts";
import { described, maybe, shape } from "../../../kit/described.ts";
import { invalid } from "../../../kit/fault.ts";
import { type Call, listed, rpc, type Thing, unary } from "../../../kit/operation.ts";
import { lastPosition } from "../../../kit/sequence.ts";
import { eachOf } from "../../../kit/wkt.ts";
import type { EventLog } from "../../log/core/service.ts";
import type { Upcasts } from "../../log/schemas/service.ts";
import type { DelayedEvents } from "./delayed-events.ts";
import { type DelayedEvent, draftOf, type EmitInput, noteStarts } from "./rules.ts";
import { type Emitted, type Events, screenedPage } from "./service.ts";
import { EventRecord, eventJson, fromBody, fromMessage } from "./wire.ts";

const triggerBatchMax = 100;

const Emit = Type.Object({
  event: Type.String(),
  data: Type.Optional(Type.Unknown()),
  version: Type.Optional(Type.Integer({ maximum: 2_147_483_647 })),
  metadata: Type.Optional(Type.Union([Type.Record(Type.String(), Type.Unknown()), Type.Null()])),
  idempotencyKey: Type.Optional(Type.String()),
  delayMs: Type.Optional(Type.Integer()),
  at: Type.Optional(Type.String()),
  tellUnserved: Type.Optional(Type.Boolean()),
});

const Delayed = Type.Object({
  id: shape.text("Id of the delayed event (`dly_…`)."),
  name: shape.text("Name of the event."),
  due_at: shape.time("When it is to be emitted."),
  created_at: shape.time("When it was sent in."),
  sent_by: maybe.text("Id of the key or user that sent it in, and must be one who may, at its time."),
});

const Batch = Type.Object({ events: Type.Array(Emit) });

const toMessage = (emitted: Emitted) => ({
  eventId: emitted.eventId,
  runIds: emitted.runIds,
  sequence: BigInt(emitted.position ?? 0),
  notices: emitted.notices ? [...emitted.notices] : [],
  unserved: emitted.unserved ? [...emitted.unserved] : [],
  ...(emitted.delayed && delayedFields(emitted.delayed)),
});

/** What only callers hear who ask for it: the answer to a repeated key has nothing more than it ever had. */
const asAsked = (emitted: Emitted, { tellUnserved }: Static<typeof Emit>): Emitted =>
  emitted.unserved === undefined || tellUnserved ? emitted : { ...emitted, unserved: undefined };

const delayedFields = ({ id, dueAt }: DelayedEvent) => ({ delayedId: id, dueAt: rfc3339(dueAt) });

const toBody = ({ eventId, runIds, position, notices, unserved, delayed }: Emitted) => ({
  eventId,
  runIds: runIds.length > 0 ? runIds : undefined,
  sequence: position === undefined ? undefined : `${position}`,
  notices,
  unserved,
  ...(delayed && delayedFields(delayed)),
});

/** The names by which a deny policy may mean an event: its own, and the one subscribers use. */
const about = (name: string): (string | Thing)[] => [name, { type: "event", id: `events:${name}` }];
const namesOf = ({ name }: { name: string }) => namesOfEvent(name);
const alsoAsks = ["functions:invoke"];

const originOf = ({ environmentId, runId, traceparent }: Call) => ({
  ...{ environmentId, source: "api", runId, traceparent },
});

const Id = Type.String({ minLength: 1, maxLength: 200 });

const text = Type.Optional(Type.String());

const subscribe = { action: "events:subscribe", reads: true, waitsFor: "log" } as const;

export const eventsOperations = (events: Events, delays: DelayedEvents, log: EventLog, schemas: Upcasts) => [
  ...emitOperations(events, delays),
  ...delayedOperations(delays),
  ...logOperations(log, schemas),
];

const upcastField = {
  schemaVersion: Type.Optional(
    Type.Integer({
      ...{ minimum: 1, maximum: 2_147_483_647 },
      description: "Older events are answered as this version of their schema, where it says how.",
    }),
  ),
};

const cutField = {
  max_value_bytes: described(
    valueBytes,
    "Data and metadata that are larger come as `cut_values`; 0 asks for all of them.",
  ),
};

const emitOperations = (events: Events, delays: DelayedEvents) => [
  unary({
    name: "events.emit",
    action: "events:emit",
    summary: "Accepts one event; runs of every function it triggers are created in the same commit.",
    input: Emit,
    writes: { log: "events", positionOf: ({ position }: Emitted) => position },
    about: ({ event }: Static<typeof Emit>) => about(event),
    alsoAsks,
    rpc: [
      rpc(SvcService.method.emit, fromMessage, toMessage, { decode: fromBody, encode: toBody }),
      rpc(SvcService.method.trigger, fromMessage, toMessage, { decode: fromBody, encode: toBody }),
      rpc(PubSubService.method.emit, fromMessage, toMessage, { decode: fromBody, encode: toBody }),
    ],
    async handle(input, call) {
      const draft = draftOf(input as EmitInput, call.idempotencyKey);
      const noting = noteStarts(call, [draft]);
      if (noting) await noting;
      const { delayMs, at } = input;
      if (delayMs !== undefined || at !== undefined) {
        const origin = { ...originOf(call), sender: starterOf(call.caller) };
        return delays.schedule(draft, { delayMs, at }, origin);
      }
      const [emitted] = await events.emit([draft], originOf(call));
      return asAsked(emitted!, input);
    },
  }),
  unary({
    name: "events.emitBatch",
    action: "events:emit",
    summary: `Accepts up to ${triggerBatchMax} events in order; one that is illegal refuses all.`,
    input: Batch,
    writes: { log: "events", positionOf: lastPosition },
    about: ({ events: list }: Static<typeof Batch>) => list.flatMap(({ event }) => about(event)),
    alsoAsks,
    rpc: rpc(
      SvcService.method.triggerBatch,
      (m) => ({ events: m.events.map(fromMessage) }),
      (list: Emitted[]) => ({ results: list.map(toMessage) }),
      {
        decode: (body) => ({ ...body, events: eachOf(body.events, fromBody) }),
        encode: (list) => ({ results: list.map(toBody) }),
      },
    ),
    async handle(input, call) {
      if (input.events.length > triggerBatchMax)
        throw invalid("events", `at most ${triggerBatchMax} in one batch`);
      if (call.idempotencyKey)
        throw invalid("Idempotency-Key", "give each event of a batch its own idempotencyKey");
      for (const [at, { delayMs, at: time }] of input.events.entries())
        if (delayMs !== undefined || time !== undefined)
          throw invalid(`events[${at}].${time === undefined ? "delayMs" : "at"}`, "is for single events");
      const drafts = input.events.map((item, at) => draftOf(item as EmitInput, undefined, `events[${at}].`));
      const noting = noteStarts(call, drafts);
      if (noting) await noting;
      const list = await events.emit(drafts, originOf(call));
      return list.map((emitted, at) => asAsked(emitted, input.events[at]!));
    },
  }),
];

const DelayedId = Type.String({ minLength: 1, maxLength: 200, description: "Id of the delayed event." });

const delayedOperations = (delays: DelayedEvents) => [
  unary({
    name: "events.delayed",
    action: "events:subscribe",
    summary: "Events that are to be emitted later, by their time.",
    reads: true,
    input: Type.Object({ limit: Type.Optional(Type.Integer()), cursor: text }),
    output: Type.Object({
      events: Type.Array(Delayed, { description: "Events that are emitted later." }),
      next_cursor: maybe.text("Where the next page begins; absent on the last."),
    }),
    rest: "GET /api/v1/delayed-events",
    lists: listed(namesOf, { under: "events" }),
    async handle(input, call) {
      const { items, nextCursor } = await delays.list(call.environmentId, input);
      return {
        events: items.map(({ id, name, dueAt, createdAt, sentBy }) => ({
          ...{ id, name, due_at: rfc3339(dueAt), created_at: rfc3339(createdAt) },
          ...(sentBy !== "" && { sent_by: sentBy }),
        })),
        ...(nextCursor !== undefined && { next_cursor: nextCursor }),
      };
    },
  }),
  unary({
    name: "events.cancelDelayed",
    action: "events:emit",
    summary: "Cancels an event that is to be emitted later.",
    input: Type.Object({ id: DelayedId }),
    about: ({ id, name }: { id: string; name?: string | undefined }) =>
      name === undefined ? [id] : about(name),
    rest: { route: "DELETE /api/v1/delayed-events/{id}", status: 204, encode: () => ({ status: 204 }) },
    async handle({ id }, call, permit) {
      await delays.cancel(call.environmentId, id, ({ name }) => permit({ id, name }));
    },
  }),
];

const logOperations = (log: EventLog, schemas: Upcasts) => [
  unary({
    name: "events.list",
    ...subscribe,
    summary: "Events of the environment, newest first.",
    input: Type.Object({
      name: described(text, "Text that names must hold."),
      names: described(text, "Exact names, separated by commas."),
      source: described(text, "Only events that came from there: `api`, `cron`, `webhook` and others."),
      search: text,
      since: text,
      until: text,
      limit: Type.Optional(Type.Integer()),
      cursor: text,
      before: described(text, "`prev_cursor` of the page after; opaque."),
      ...upcastField,
      ...cutField,
    }),
    output: Type.Object({
      events: Type.Array(EventRecord, { description: "Events, newest first." }),
      count: shape.count("How many events the page has."),
      limit: shape.count("How many events the page may have."),
      next_cursor: Type.Optional(Type.String()),
      prev_cursor: Type.Optional(Type.String()),
      has_next: Type.Boolean(),
      has_prev: Type.Boolean(),
      approx_total: Type.Integer(),
      approx_total_capped: Type.Boolean(),
      truncated: shape.flag(
        "The page ended because so many events had been looked at: its cursor goes on behind them.",
      ),
      scanned: shape.count("How many events were looked at, where truncated."),
    }),
    rest: "GET /api/v1/events",
    async handle({ schemaVersion, max_value_bytes, ...input }, call) {
      const screen = await screenOfKinds(call, "event", "stream");
      const page = screen
        ? await screenedPage(log, call.environmentId, input, (event) =>
            screen.refusalOf(thingsOfEvent(event)),
          )
        : await log.list(call.environmentId, input);
      const shown =
        schemaVersion === undefined
          ? page.events
          : await schemas.broughtUp(call.environmentId, page.events, schemaVersion);
      return {
        events: shown.map((event) => eventJson(event, max_value_bytes)),
        count: page.events.length,
        limit: page.limit,
        ...(page.nextCursor !== undefined && { next_cursor: page.nextCursor }),
        ...(page.prevCursor !== undefined && { prev_cursor: page.prevCursor }),
        has_next: page.hasNext,
        has_prev: page.hasPrev,
        approx_total: page.approxTotal,
        approx_total_capped: page.approxTotalCapped,
        ...{ truncated: page.scanned > 0, scanned: page.scanned },
      };
    },
  }),
  unary({
    name: "events.names",
    ...subscribe,
    summary: "Distinct names of the newest events with their counts.",
    input: Type.Object({
      source: described(text, "Only events that came from there: `api`, `cron`, `webhook` and others."),
      since: text,
      until: text,
    }),
    output: Type.Object({
      names: Type.Array(
        Type.Object({
          name: shape.text("Name that events have."),
          count: shape.count("How many of the events have the name."),
        }),
        { description: "Names with their counts, most frequent first." },
      ),
      scanned: shape.count(
        "How many events were looked at, the newest of the time asked for, whether they match or not.",
      ),
      truncated: shape.flag("There are older events that were not looked at, or more names than are shown."),
      scan_cap: shape.count("How many events are looked at, at most."),
    }),
    rest: "GET /api/v1/events/names",
    lists: listed(namesOf, { under: "names" }),
    async handle(input, call) {
      const { names, ...page } = await log.names(call.environmentId, input);
      // A count would tell of the events of hidden streams.
      const hidden = await (await screenOfKinds(call, "stream"))?.refusalOf(allThingsOf("stream"));
      return { names: hidden ? names.map((one) => ({ ...one, count: 0 })) : names, ...page };
    },
  }),
  unary({
    name: "events.get",
    ...subscribe,
    summary: "One event.",
    input: Type.Object({ id: described(Id, "Id of the event (`evt_…`)."), ...upcastField, ...cutField }),
    about: ({ id, name, entity_id }: { id: string; name?: string; entity_id?: string }) =>
      name === undefined ? [id] : thingsOfEvent({ name, entity_id }),
    alsoAsks: actionsThatShow("stream"),
    finds: (found, { id }) => ({ ...(found as { name: string; entity_id?: string }), id }),
    output: EventRecord,
    rest: "GET /api/v1/events/{id}",
    async handle({ id, schemaVersion, max_value_bytes }, call) {
      const event = await log.get(call.environmentId, id);
      if (schemaVersion === undefined) return eventJson(event, max_value_bytes);
      const [brought] = await schemas.broughtUp(call.environmentId, [event], schemaVersion);
      return eventJson(brought!, max_value_bytes);
    },
  }),
];
