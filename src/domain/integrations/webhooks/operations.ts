import { type Static, Type } from "@sinclair/typebox";
import { hiderOfEvents } from "../../../gate/things.ts";
import { WebhookService, WebhookVerifyConfigSchema } from "../../../gen/svc/v1/webhook_pb.ts";
import { withoutPlace } from "../../../kit/bounded-look.ts";
import { stated } from "../../../kit/cases.ts";
import { described, maybe } from "../../../kit/described.ts";
import {
  type Call,
  listed,
  listedById,
  nothing,
  type Operation,
  type Permit,
  rpc,
  type Thing,
  unary,
} from "../../../kit/operation.ts";
import { requestOf, sentShape } from "../../../kit/request.ts";
import { instantOf } from "../../../kit/wkt.ts";
import { emitThings, readThings } from "./rules.ts";
import type { DeliveryRow, Webhooks } from "./service.ts";
import type { ShownSource } from "./sources.ts";
import { flowJson, fromConfig, toDeliveries, toDelivery, toSource, toSources, toTrial } from "./wire.ts";

const text = Type.String();
const optional = Type.Optional(text);
const count = Type.Optional(Type.Integer());
const expected = Type.Optional(Type.Integer());

const Config = sentShape(WebhookVerifyConfigSchema);

const source = {
  name: optional,
  verifyHeader: optional,
  verifyAlgorithm: optional,
  metadata: Type.Optional(Type.Record(text, Type.Unknown())),
  verifyConfig: Type.Optional(Config),
  preset: optional,
};

const Create = Type.Object({ ...source, eventPrefix: text, secret: optional });
const Id = Type.Object({ id: text });

const read = { action: "webhooks:read", reads: true } as const;
const manage = { action: "webhooks:manage" } as const;

/** A caller who makes or changes a source, or redelivers, must be allowed to emit what it emits. */
const emits = { alsoAsks: ["events:emit", "functions:invoke"], costs: () => ["events:emit"] };
/** Deliveries show what events hold. */
const shows = { alsoAsks: ["events:subscribe"], costs: () => ["events:subscribe"] };

const at = (timestamp: Parameters<typeof instantOf>[0] | undefined) =>
  timestamp === undefined ? undefined : instantOf(timestamp);

/** Further things that the call is about, which only the row named. */
const ask = (permit: Permit, things: readonly (string | Thing)[]) => permit({ things });

/** With their own token, secret or rules callers would get round policies that hide its events from them. */
async function askToEmit(
  sources: Webhooks["sources"],
  { id, call, permit }: { id: string; call: Call; permit: Permit },
): Promise<void> {
  const { event_prefix } = await sources.find(call.environmentId, id);
  await ask(permit, [id, ...emitThings(event_prefix)]);
}

/** By its input as it was sent, or by the things that a handler found it to be about. */
const aboutId =
  <Input extends object>(idOf: (input: Input) => string) =>
  (input: Input | { things: readonly (string | Thing)[] }): (string | Thing)[] =>
    "things" in input ? [...input.things] : [idOf(input) || "*"];

export const webhooksOperations = (webhooks: Webhooks): Operation[] => [
  ...sourceOperations(webhooks),
  ...secretOperations(webhooks),
  ...deliveryOperations(webhooks),
];

const sourceOperations = ({ sources, flow }: Webhooks): Operation[] => [
  unary({
    name: "webhooks.create",
    ...manage,
    ...emits,
    summary: "A source of inbound webhooks; the answer alone holds its ingest token.",
    input: Create,
    about: ({ name, eventPrefix }: Static<typeof Create>) => [name || "*", ...emitThings(eventPrefix)],
    rpc: rpc(
      WebhookService.method.createWebhookSource,
      ({
        name,
        eventPrefix,
        verifyHeader,
        verifyAlgorithm,
        verifySecret,
        metadata,
        verifyConfig,
        preset,
      }) => ({
        ...{ name, eventPrefix, verifyHeader, verifyAlgorithm, secret: verifySecret, preset },
        ...stated({ metadata, verifyConfig: fromConfig(verifyConfig) }),
      }),
      toSource,
    ),
    handle: (input, call) => sources.create(call.environmentId, input),
  }),
  unary({
    name: "webhooks.get",
    ...read,
    summary: "One source, without its secrets.",
    ...requestOf(WebhookService.method.getWebhookSource, toSource),
    handle: async ({ id }, call): Promise<ShownSource> => ({
      row: await sources.find(call.environmentId, id),
    }),
  }),
  unary({
    name: "webhooks.list",
    ...read,
    summary: "Sources of the environment, oldest first.",
    ...requestOf(WebhookService.method.listWebhookSources, toSources),
    lists: listedById("sources"),
    handle: (page, call) => sources.list(call.environmentId, page),
  }),
  unary({
    name: "webhooks.update",
    ...manage,
    ...emits,
    about: aboutId(({ id }: { id: string }) => id),
    summary: "Replaces name and metadata, and what verifies as far as it is given.",
    input: Type.Object({ ...source, id: text, expected }),
    rpc: rpc(
      WebhookService.method.updateWebhookSource,
      ({ id, name, verifyHeader, verifyAlgorithm, metadata, verifyConfig, preset, expectedUpdatedAt }) => ({
        ...{ id, name, verifyHeader, verifyAlgorithm, preset },
        ...stated({ metadata, verifyConfig: fromConfig(verifyConfig), expected: at(expectedUpdatedAt) }),
      }),
      toSource,
    ),
    async handle({ id, ...input }, call, permit) {
      await askToEmit(sources, { id, call, permit });
      return sources.update(call.environmentId, id, { ...input, expected: input.expected });
    },
  }),
  unary({
    name: "webhooks.delete",
    ...manage,
    summary: "Deletes a source; its deliveries stay until their time is over.",
    ...requestOf(WebhookService.method.deleteWebhookSource, nothing),
    handle: ({ id }, call) => sources.delete(call.environmentId, id),
  }),
  unary({
    name: "webhooks.flow",
    ...read,
    summary: "WebhookSources with the counts of their newest deliveries, and the events that came of them.",
    input: Type.Object({}),
    output: Type.Object({
      sources: Type.Array(
        Type.Object({
          id: described(text, "Id of the source (`whs_…`)."),
          name: described(text, "Name of the source, for people."),
          event_prefix: text,
          source_type: text,
          delivery_counts: Type.Record(text, Type.Integer(), {
            description: "How many of the newest deliveries have which status.",
          }),
          latest_delivery_at: maybe.time("When something came last, RFC 3339; absent before the first time."),
          latest_delivery_status: described(optional, "`accepted`, `rejected` or `failed`."),
        }),
        { description: "Sources, oldest first." },
      ),
      edges: Type.Array(Type.Object({ event: described(text, "Name of the event."), source_id: text }), {
        description: "Which events came of which source.",
      }),
    }),
    rest: "GET /api/v1/flow/webhooks",
    lists: {
      items: ({ sources: all }: ReturnType<typeof flowJson>) => all,
      namesOf: ({ id }: { id: string }) => [id],
      only: ({ edges }: ReturnType<typeof flowJson>, items) => {
        const kept: ReturnType<typeof flowJson>["sources"] = [...items];
        const ids = new Set(kept.map(({ id }) => id));
        return { sources: kept, edges: edges.filter(({ source_id }) => ids.has(source_id)) };
      },
      type: "webhook",
    },
    async handle(_input, call) {
      const { sources, edges } = await flow(call.environmentId);
      const hides = await hiderOfEvents(call);
      const isHidden = await Promise.all(edges.map(({ event }) => hides({ name: event })));
      return flowJson({ sources, edges: edges.filter((_edge, at) => !isHidden[at]) });
    },
  }),
];

const secretOperations = ({ sources, trial }: Webhooks): Operation[] => [
  unary({
    name: "webhooks.rotateSecret",
    ...manage,
    ...emits,
    about: aboutId(({ id }: { id: string }) => id),
    summary: "A new secret to verify with; the old one stays valid until its grace ends.",
    input: Type.Object({ id: text, secret: text, graceSeconds: count, expected }),
    rpc: rpc(
      WebhookService.method.rotateWebhookSecret,
      ({ id, verifySecret, graceSeconds, expectedUpdatedAt }) => ({
        ...{ id, secret: verifySecret, ...stated({ graceSeconds, expected: at(expectedUpdatedAt) }) },
      }),
      toSource,
    ),
    async handle({ id, secret, graceSeconds, expected }, call, permit) {
      await askToEmit(sources, { id, call, permit });
      return sources.rotateSecret(call.environmentId, id, { secret, graceSeconds, expected });
    },
  }),
  unary({
    name: "webhooks.expireSecret",
    ...manage,
    summary: "Ends the grace of the previous secret now.",
    input: Type.Object({ id: text, expected }),
    rpc: rpc(
      WebhookService.method.expireWebhookSecretPrev,
      ({ id, expectedUpdatedAt }) => ({ id, ...stated({ expected: at(expectedUpdatedAt) }) }),
      toSource,
    ),
    handle: ({ id, expected }, call) => sources.expireSecret(call.environmentId, id, expected),
  }),
  unary({
    name: "webhooks.disableVerification",
    ...manage,
    ...emits,
    about: aboutId(({ id }: { id: string }) => id),
    summary: "Takes the secret away: the ingest token alone lets requests in.",
    input: Type.Object({ id: text, graceSeconds: count, expected }),
    rpc: rpc(
      WebhookService.method.disableWebhookSignatureVerification,
      ({ id, graceSeconds, expectedUpdatedAt }) => ({
        id,
        ...stated({ graceSeconds, expected: at(expectedUpdatedAt) }),
      }),
      toSource,
    ),
    async handle({ id, graceSeconds, expected }, call, permit) {
      await askToEmit(sources, { id, call, permit });
      return sources.disableVerification(call.environmentId, id, { graceSeconds, expected });
    },
  }),
  unary({
    name: "webhooks.rotateToken",
    ...manage,
    ...emits,
    about: aboutId(({ id }: { id: string }) => id),
    summary: "Another ingest token, which the answer alone holds; the old one ends at once.",
    input: Type.Object({ id: text, expected }),
    rpc: rpc(
      WebhookService.method.rotateWebhookIngestToken,
      ({ id, expectedUpdatedAt }) => ({ id, ...stated({ expected: at(expectedUpdatedAt) }) }),
      toSource,
    ),
    async handle({ id, expected }, call, permit) {
      await askToEmit(sources, { id, call, permit });
      return sources.rotateToken(call.environmentId, id, expected);
    },
  }),
  unary({
    name: "webhooks.test",
    ...manage,
    reads: true,
    summary: "What the ingest would make of a sample; stores nothing.",
    input: Type.Object({
      sourceId: text,
      secret: text,
      config: Type.Optional(Config),
      body: text,
      headers: Type.Record(text, text),
    }),
    about: aboutId(({ sourceId }: { sourceId: string }) => sourceId),
    rpc: rpc(
      WebhookService.method.testWebhookVerifyConfig,
      ({ sourceId, verifySecret, verifyConfig, body, headers }) => ({
        ...{ sourceId, secret: verifySecret, body, headers },
        ...stated({ config: fromConfig(verifyConfig) }),
      }),
      toTrial,
    ),
    handle: (input, call) => trial(call.environmentId, { ...input, config: input.config }),
  }),
];

const deliveryOperations = ({ sources, deliveries }: Webhooks): Operation[] => [
  unary({
    name: "webhooks.listDeliveries",
    ...read,
    ...shows,
    summary: "What providers sent, newest first, with the beginning of each body.",
    ...requestOf(WebhookService.method.listWebhookDeliveries, toDeliveries),
    about: aboutId(({ sourceId }: { sourceId: string }) => sourceId),
    lists: withoutPlace(listed(({ source_id }: DeliveryRow) => [source_id], { under: "deliveries" })),
    async handle(input, call, permit) {
      const { sourceId } = input;
      const source = sourceId === "" ? undefined : await sources.find(call.environmentId, sourceId);
      await ask(permit, readThings(source ? `${source.event_prefix}.*` : "*"));
      return deliveries.list(call.environmentId, input);
    },
  }),
  unary({
    name: "webhooks.getDelivery",
    ...read,
    ...shows,
    summary: "One delivery with its whole body.",
    ...requestOf(WebhookService.method.getWebhookDelivery, toDelivery),
    about: aboutId(({ id }: Static<typeof Id>) => id),
    async handle({ id }, call, permit) {
      const row = await deliveries.find(call.environmentId, id);
      await ask(permit, [row.source_id, ...readThings(row.event_name ?? "*")]);
      return row;
    },
  }),
  unary({
    name: "webhooks.redeliver",
    ...manage,
    ...emits,
    summary: "Emits the event of a kept delivery again, as a delivery of its own that names the first.",
    ...requestOf(WebhookService.method.redeliverWebhook, toDelivery),
    about: aboutId(({ id }: Static<typeof Id>) => id),
    async handle({ id }, call, permit) {
      const { source_id } = await deliveries.find(call.environmentId, id);
      await askToEmit(sources, { id: source_id, call, permit });
      return deliveries.redeliver(call.environmentId, id);
    },
  }),
];
