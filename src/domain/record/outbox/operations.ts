import { Type } from "@sinclair/typebox";
import { actionsThatShow, screenOfKinds, thingsOfMessage } from "../../../gate/things.ts";
import { namedEnvironment } from "../../../kit/caller.ts";
import { rfc3339 } from "../../../kit/clock.ts";
import { described, shape } from "../../../kit/described.ts";
import { invalid } from "../../../kit/fault.ts";
import { type Call, listed, type Operation, type RestRequest, unary } from "../../../kit/operation.ts";
import { deadLettersMax, deadLettersOffsetMax } from "./limits.ts";
import type { HidesLetter, Outbox, OutboxEntry } from "./service.ts";

const text = Type.String();
const instant = Type.String({ format: "date-time" });
const bytes = Type.String({ contentEncoding: "base64" });

export const DeadLetter = Type.Object({
  id: described(text, "Id of the message (`ob_…`)."),
  event_id: text,
  entity_id: text,
  topic: described(text, "Topic with its namespace, such as `events:order.placed`."),
  kind: described(
    text,
    "`mirror` (an event for subscribers of the bus), `control` (for the worker of a run), `delayed` (an event that was refused when its time had come) or `group` (a delivery that a consumer group gave up).",
  ),
  environment_id: text,
  created_at: instant,
  dead_at: instant,
  attempts: Type.Integer(),
  last_error: text,
  payload: described(
    bytes,
    "JSON text of the message, in base64; `null` of a `group`, whose event stands in its log.",
  ),
  metadata: described(bytes, "JSON text of what stands beside it, in base64."),
});

const base64 = (json: string): string => Buffer.from(json).toString("base64");

const deadLetterJson = (row: OutboxEntry) => ({
  id: row.id,
  event_id: row.event_id,
  entity_id: row.entity_id ?? "",
  topic: row.topic,
  kind: row.kind,
  environment_id: row.environment_id,
  created_at: rfc3339(row.created_at),
  dead_at: rfc3339(row.dead_at ?? row.created_at),
  attempts: row.attempts,
  last_error: row.last_error ?? "",
  payload: base64(row.payload),
  metadata: base64(row.metadata),
});

const Page = Type.Object({
  limit: Type.Optional(
    Type.Integer({
      minimum: 1,
      maximum: deadLettersMax,
      description: "How many at most: 50 unless it says otherwise, never more than 500.",
    }),
  ),
  offset: Type.Optional(Type.Integer({ minimum: 0, maximum: deadLettersOffsetMax })),
});

/** The environment must be named by query or header; the key's own environment does not count. */
function decodePage({ query, headers }: RestRequest): unknown {
  if (!namedEnvironment(query.get("env")) && !namedEnvironment(headers.get("x-svc-environment")))
    throw invalid("env", "is required, as query parameter or header X-Svc-Environment");
  const whole = (name: string) => {
    const given = query.get(name);
    if (given === null) return {};
    return { [name]: /^-?\d{1,15}$/.test(given) ? Number(given) : given };
  };
  return { ...whole("limit"), ...whole("offset") };
}

const Target = Type.Object({ eventID: Type.String({ minLength: 1, maxLength: 512 }) });
const Result = Type.Object({
  event_id: text,
  result: described(text, "What was done: `requeued` or `discarded`."),
});
const about = ({ eventID }: { eventID: string }) => [eventID];
const hiding = actionsThatShow("event", "stream");

/** Which letters policies keep from the caller, in the list too. */
async function hiderOf(call: Call): Promise<HidesLetter> {
  const screen = await screenOfKinds(call, "event", "stream");
  return async (letter) => (await screen?.refusalOf(thingsOfMessage(letter))) !== undefined;
}

export const outboxOperations = (outbox: Outbox): Operation[] => [
  unary({
    name: "outbox.deadLetters",
    action: "events:subscribe",
    reads: true,
    summary: "Messages whose attempts are spent, and what else was given up, newest first.",
    input: Page,
    output: Type.Object({
      items: Type.Array(DeadLetter, { description: "Dead letters, newest first." }),
      limit: shape.count("How many the page may have: fewer than asked for where payloads are large."),
      offset: Type.Integer(),
    }),
    rest: {
      route: "GET /api/v1/outbox/dead-letter",
      decode: decodePage,
      query: Type.Object({
        env: described(
          Type.Optional(text),
          "Id or name of the environment: required without X-Svc-Environment.",
        ),
        ...Page.properties,
      }),
    },
    // What is shown is the event's payload.
    lists: listed(({ topic }: { topic: string }) => [topic], {
      ...{ under: "items", type: "event" },
      shows: (letter: { topic: string; entity_id: string }) =>
        thingsOfMessage({ ...letter, entity_id: letter.entity_id || null }),
    }),
    async handle(input, call) {
      const { items, ...page } = await outbox.deadLetters(call.environmentId, input);
      return { items: items.map(deadLetterJson), ...page };
    },
  }),
  unary({
    name: "outbox.requeue",
    action: "outbox:manage",
    summary:
      "Tries every dead letter of the event anew, with all its attempts. A delayed event is emitted and a group's delivery handed out again, or the answer says why not.",
    alsoAsks: ["events:emit", ...hiding],
    input: Target,
    output: Result,
    about,
    rest: "POST /api/v1/outbox/dead-letter/{eventID}/requeue",
    async handle({ eventID }, call) {
      const screen = await call.screen("events:emit", "event");
      await outbox.requeue(call.environmentId, eventID, await hiderOf(call), async (topic) => {
        const refusal = await screen?.refusalOf([topic.replace(/^events:/, ""), topic]);
        if (refusal) throw refusal;
      });
      return { event_id: eventID, result: "requeued" };
    },
  }),
  unary({
    name: "outbox.discard",
    action: "outbox:manage",
    summary: "Gives the event's dead letters up; the event itself stays.",
    alsoAsks: hiding,
    input: Target,
    output: Result,
    about,
    rest: "DELETE /api/v1/outbox/dead-letter/{eventID}",
    async handle({ eventID }, call) {
      await outbox.discard(call.environmentId, eventID, await hiderOf(call));
      return { event_id: eventID, result: "discarded" };
    },
  }),
];
