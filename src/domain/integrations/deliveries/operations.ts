import { type Static, Type } from "@sinclair/typebox";
import { actionsThatShow, namesOfEvent, thingsOfEvent } from "../../../gate/things.ts";
import {
  WebhookDeadLetterSchema,
  WebhookEndpointSchema,
  WebhookEndpointService,
} from "../../../gen/svc/v1/webhook_pb.ts";
import { Fault } from "../../../kit/fault.ts";
import { fieldsFor } from "../../../kit/message-shape.ts";
import {
  listed,
  listedById,
  nothing,
  type Operation,
  rpc,
  type Thing,
  unary,
} from "../../../kit/operation.ts";
import { requestOf } from "../../../kit/request.ts";
import { safeCount, timestampOf } from "../../../kit/wkt.ts";
import { allOf, parsePattern } from "../../realtime/pubsub/rules.ts";
import type { LetterRow, ListedLetter, ShownEndpoint, WebhookEndpoints } from "./service.ts";

const ofEndpoint = fieldsFor(WebhookEndpointSchema);
const ofLetter = fieldsFor(WebhookDeadLetterSchema);

const toEndpoint = ({ row, secret }: ShownEndpoint) => ({
  ...ofEndpoint(row, "id name url pattern filter status disabled_reason position attempts failing_event_id"),
  ...ofEndpoint(row, "failing_since last_error last_delivered_at created_at updated_at"),
  ...(secret !== undefined && { secret }),
  ...(row.prev_expires_at !== null && { previousSecretExpiresAt: timestampOf(row.prev_expires_at) }),
  ...(row.attempts > 0 && { nextAttemptAt: timestampOf(row.due_at) }),
  ...{ behind: BigInt(Math.max(0, row.head - row.position)), deadLetters: row.letters },
});

const toEndpoints = (page: { endpoints: ShownEndpoint["row"][]; totalCount: number }) => ({
  endpoints: page.endpoints.map((row) => toEndpoint({ row })),
  totalCount: page.totalCount,
});

const toLetter = (row: LetterRow) => ({
  ...ofLetter(row, "endpoint_id event_id event_name attempts last_error dead_at"),
  ...{ sequence: BigInt(row.position), redelivering: row.due_at !== null },
});

const toLetters = (page: { letters: LetterRow[]; totalCount: number }) => ({
  deadLetters: page.letters.map(toLetter),
  totalCount: page.totalCount,
});

const text = Type.String();
const optional = Type.Optional(text);
const integer = Type.Integer();

const Create = Type.Object({
  ...{ name: text, url: text, pattern: text, filter: text },
  after: Type.Optional(integer),
});
const Update = Type.Object({ id: text, name: optional, url: optional, pattern: optional, filter: optional });
const read = { action: "webhooks:read", reads: true } as const;
const manage = { action: "webhooks:manage" } as const;
/** An endpoint carries events away: who makes one must be allowed to read all that its pattern matches. */
const carries = { alsoAsks: actionsThatShow("event", "stream"), costs: () => ["events:subscribe"] };

/** What a pattern matches; a text that is none is refused by its operation. */
function matched(pattern: string | undefined): Thing[] {
  if (pattern === undefined) return [];
  try {
    return allOf(parsePattern(pattern));
  } catch (error) {
    if (error instanceof Fault) return [];
    throw error;
  }
}

const aboutEndpoint = ({ endpointId }: { endpointId: string }) => [endpointId || "*"];
const { method } = WebhookEndpointService;

export const deliveriesOperations = (deliveries: WebhookEndpoints): Operation[] => [
  ...endpointOperations(deliveries),
  ...changeOperations(deliveries),
  ...letterOperations(deliveries),
];

const endpointOperations = ({ endpoints }: WebhookEndpoints): Operation[] => [
  unary({
    name: "webhookEndpoints.create",
    ...manage,
    ...carries,
    summary: "An endpoint that the events of a pattern are sent to; the answer alone holds its secret.",
    input: Create,
    about: ({ name, pattern }: Static<typeof Create>) => [name || "*", ...matched(pattern)],
    rpc: rpc(
      method.createWebhookEndpoint,
      ({ name, url, pattern, filter, after }) => ({
        ...{ name, url, pattern, filter },
        ...(after !== undefined && { after: safeCount(after) }),
      }),
      toEndpoint,
    ),
    handle: (input, call) => endpoints.create(call.environmentId, input),
  }),
  unary({
    name: "webhookEndpoints.get",
    ...read,
    summary: "One endpoint: how far it is, and what it fails with.",
    ...requestOf(method.getWebhookEndpoint, toEndpoint),
    handle: async ({ id }, call): Promise<ShownEndpoint> => ({
      row: await endpoints.find(call.environmentId, id),
    }),
  }),
  unary({
    name: "webhookEndpoints.list",
    ...read,
    summary: "Endpoints of the environment, oldest first.",
    ...requestOf(method.listWebhookEndpoints, toEndpoints),
    lists: listedById("endpoints"),
    handle: (input, call) => endpoints.list(call.environmentId, input),
  }),
  unary({
    name: "webhookEndpoints.delete",
    ...manage,
    summary: "Deletes an endpoint with its dead letters.",
    ...requestOf(method.deleteWebhookEndpoint, nothing),
    handle: ({ id }, call) => endpoints.delete(call.environmentId, id),
  }),
];

const changeOperations = ({ endpoints }: WebhookEndpoints): Operation[] => [
  unary({
    name: "webhookEndpoints.update",
    ...manage,
    ...carries,
    summary: "Changes what is given; the place in the log stays.",
    ...requestOf(method.updateWebhookEndpoint, toEndpoint),
    about: (input: Static<typeof Update> | { leadsTo: string }): (string | Thing)[] =>
      "leadsTo" in input ? matched(input.leadsTo) : [input.id || "*", ...matched(input.pattern)],
    async handle({ id, ...input }, call, permit) {
      // Another URL would carry away what the present pattern matches.
      const { pattern } = await endpoints.find(call.environmentId, id);
      await permit({ leadsTo: pattern });
      return endpoints.update(call.environmentId, id, input);
    },
  }),
  unary({
    name: "webhookEndpoints.rotateSecret",
    ...manage,
    summary: "Another secret; calls are signed with both until the grace of the old one is over.",
    ...requestOf(method.rotateWebhookEndpointSecret, toEndpoint),
    handle: ({ id, graceSeconds }, call) => endpoints.rotateSecret(call.environmentId, id, graceSeconds),
  }),
  unary({
    name: "webhookEndpoints.pause",
    ...manage,
    summary: "Sends nothing until the endpoint is resumed; its place in the log stays.",
    ...requestOf(method.pauseWebhookEndpoint, toEndpoint),
    handle: ({ id }, call) => endpoints.pause(call.environmentId, id),
  }),
  unary({
    name: "webhookEndpoints.resume",
    ...manage,
    summary: "Goes on with a paused or disabled endpoint, and tries at once what failed or passes over it.",
    ...requestOf(method.resumeWebhookEndpoint, toEndpoint),
    handle: ({ id, skipEventId }, call) => endpoints.resume(call.environmentId, id, skipEventId),
  }),
];

const letterOperations = (deliveries: WebhookEndpoints): Operation[] => [
  unary({
    name: "webhookEndpoints.listDeadLetters",
    ...read,
    summary: "Events that the endpoint did not take, in the order of the log.",
    ...requestOf(method.listWebhookDeadLetters, toLetters),
    about: aboutEndpoint,
    lists: listed(({ event_name }: ListedLetter) => namesOfEvent(event_name), {
      ...{ under: "letters", type: "event" },
      shows: ({ event_name: name, entity_id }: ListedLetter) => thingsOfEvent({ name, entity_id }),
    }),
    handle: ({ endpointId, ...page }, call) => deliveries.deadLetters(call.environmentId, endpointId, page),
  }),
  unary({
    name: "webhookEndpoints.redeliver",
    ...manage,
    summary: "Sends a dead letter again, before what the log has next.",
    ...requestOf(method.redeliverWebhookDeadLetter, toLetter),
    about: aboutEndpoint,
    handle: ({ endpointId, eventId }, call) => deliveries.redeliver(call.environmentId, endpointId, eventId),
  }),
  unary({
    name: "webhookEndpoints.discard",
    ...manage,
    summary: "Gives a dead letter up; the event itself stays.",
    ...requestOf(method.discardWebhookDeadLetter, nothing),
    about: aboutEndpoint,
    handle: ({ endpointId, eventId }, call) => deliveries.discard(call.environmentId, endpointId, eventId),
  }),
];
