import { type Static, Type } from "@sinclair/typebox";
import { actionsThatShow } from "../../../gate/things.ts";
import { PubSubService } from "../../../gen/svc/v1/pubsub_pb.ts";
import {
  type Call,
  listed,
  nothing,
  type Operation,
  rpc,
  rpcStream,
  stream,
  unary,
} from "../../../kit/operation.ts";
import { asSent, requestOf } from "../../../kit/request.ts";
import { allOf, namesOfText, parsePattern } from "../pubsub/rules.ts";
import type { Delivery } from "../pubsub/service.ts";
import type { SubscriptionStreams } from "../pubsub/subscription-streams.ts";
import { toEventMessage } from "../pubsub/wire.ts";
import type { Groups, ListedGroup, ShownGroup } from "./service.ts";
import { fromAckType, fromGroup, fromStatus, toGroup, toShownGroup } from "./wire.ts";

const text = Type.Optional(Type.String());
const count = Type.Optional(Type.Integer());

const Settings = Type.Object({
  pattern: text,
  filterExpr: text,
  ackMode: Type.Optional(Type.Union([Type.Literal("auto"), Type.Literal("manual")])),
  backpressure: Type.Optional(
    Type.Union([Type.Literal("drop"), Type.Literal("block"), Type.Literal("buffer")]),
  ),
  maxInflight: count,
  maxRedeliveries: count,
  redeliverDelayMs: count,
  metadata: Type.Optional(Type.Record(Type.String(), Type.Unknown())),
  status: Type.Optional(Type.Union([Type.Literal("active"), Type.Literal("paused")])),
});

const Name = Type.Object({ namespace: text, name: Type.String() });
const Create = Type.Object({ ...Name.properties, settings: Settings });
const Update = Type.Object({
  ...Create.properties,
  /** Names of the settings to change, as the message spells them. */
  paths: Type.Optional(Type.Array(Type.String())),
});

/** The names under which deny policies may refuse the group: its own, and its pattern. */
const about = (name: string, pattern?: string) => [`group:${name}`, ...(pattern ? namesOfText(pattern) : [])];

type PresentGroup = Pick<Static<typeof Update>, "name" | "settings">;

/** A group as it is: policies may name the pattern that it has, whatever a call would change. */
async function presentGroup(groups: Groups, call: Call, name: Static<typeof Name>): Promise<PresentGroup> {
  const { pattern } = await groups.get(call.environmentId, name);
  return { name: name.name, settings: { pattern } };
}

/** One message of a member's stream. */
interface MemberMessage {
  subscriptionId: string;
  pattern: string;
  /** Undefined for the message that says that the consumer has joined. */
  delivery: Delivery | undefined;
}

const subscribe = { action: "events:subscribe", reads: true, waitsFor: "log" } as const;

export const groupsOperations = (
  groups: Groups,
  streams: Pick<SubscriptionStreams, "carry">,
): Operation[] => [...settingsOperations(groups), ...memberOperations(groups, streams)];

/** For those who own a group. */
const settingsOperations = (groups: Groups): Operation[] => [
  unary({
    name: "groups.create",
    action: "events:emit",
    summary: "Creates a consumer group; it gets what its pattern stands for from now on.",
    input: Create,
    about: ({ name, settings }: Static<typeof Create>) => about(name, settings.pattern),
    rpc: rpc(
      PubSubService.method.createConsumerGroup,
      (m) => ({ namespace: m.namespace, name: m.name, settings: fromGroup(m) as Static<typeof Settings> }),
      toGroup,
    ),
    handle: ({ settings, ...name }, call) => groups.create(call.environmentId, name, settings),
  }),
  unary({
    name: "groups.get",
    ...subscribe,
    summary: "One consumer group with its members and what it holds.",
    input: Type.Object({ ...Name.properties, withDeliveries: Type.Optional(Type.Boolean()) }),
    about: ({ name, pattern }: Static<typeof Name> & { pattern?: string }) => about(name, pattern),
    finds: (found) => {
      const { name, pattern } = found as ListedGroup;
      return { name, pattern };
    },
    rpc: rpc(PubSubService.method.getConsumerGroup, asSent, toShownGroup),
    handle: ({ withDeliveries, ...name }, call): Promise<ShownGroup> =>
      withDeliveries ? groups.inspect(call.environmentId, name) : groups.get(call.environmentId, name),
  }),
  unary({
    name: "groups.list",
    ...subscribe,
    summary: "Consumer groups by namespace and name.",
    input: Type.Object({
      namespace: text,
      status: Settings.properties.status,
      limit: count,
      cursor: text,
    }),
    rpc: rpc(
      PubSubService.method.listConsumerGroups,
      (m) => {
        const status = fromStatus(m.status);
        return { namespace: m.namespace, limit: m.limit, cursor: m.cursor, ...(status && { status }) };
      },
      (page: Awaited<ReturnType<Groups["list"]>>) => ({
        groups: page.groups.map(toGroup),
        nextCursor: page.nextCursor ?? "",
        totalCount: page.totalCount,
      }),
    ),
    handle: ({ namespace, status, limit, cursor }, call) =>
      groups.list(call.environmentId, { namespace, status, limit, cursor }),
    lists: listed(({ name, pattern }: ListedGroup) => about(name, pattern), { under: "groups" }),
  }),
  unary({
    name: "groups.update",
    action: "events:emit",
    summary: "Changes settings of a consumer group: those that the mask names, or all that say something.",
    input: Update,
    about: ({ name, settings }: PresentGroup) => about(name, settings.pattern),
    rpc: rpc(
      PubSubService.method.updateConsumerGroup,
      ({ group, updateMask }) => ({
        namespace: group?.namespace ?? "",
        name: group?.name ?? "",
        settings: (group ? fromGroup(group) : {}) as Static<typeof Settings>,
        ...(updateMask && { paths: updateMask.paths }),
      }),
      toGroup,
    ),
    async handle({ settings, paths, ...name }, call, permit): Promise<ListedGroup> {
      await permit(await presentGroup(groups, call, name));
      return groups.update(call.environmentId, name, settings, paths);
    },
  }),
  unary({
    name: "groups.delete",
    action: "events:emit",
    summary: "Deletes a consumer group; its members' streams end.",
    ...requestOf(PubSubService.method.deleteConsumerGroup, nothing),
    about: ({ name, settings }: Static<typeof Name> & Partial<PresentGroup>) =>
      about(name, settings?.pattern),
    async handle(name, call, permit) {
      await permit(await presentGroup(groups, call, name));
      await groups.delete(call.environmentId, name);
    },
  }),
];

/** For the consumers of a group. */
const memberOperations = (groups: Groups, streams: Pick<SubscriptionStreams, "carry">): Operation[] => [
  unary({
    name: "groups.ack",
    action: "events:emit",
    summary: "Settles one delivery of a group whose ack_mode is manual: ack, nak or term.",
    input: Type.Object({
      namespace: text,
      name: Type.String(),
      consumerId: Type.String(),
      eventId: Type.String(),
      verdict: Type.Union([Type.Literal("ack"), Type.Literal("nak"), Type.Literal("term")]),
      delayMs: count,
    }),
    about: ({ name }: { name: string }) => about(name),
    rpc: rpc(
      PubSubService.method.ackEvent,
      (m) => ({
        namespace: m.namespace,
        name: m.groupName,
        consumerId: m.consumerId,
        eventId: m.eventId,
        verdict: fromAckType(m.ackType),
        delayMs: m.redeliverDelayMs,
      }),
      nothing,
    ),
    handle: (input, call) => groups.ack(call.environmentId, input),
  }),
  stream({
    name: "groups.join",
    action: "events:emit",
    waitsFor: "feed",
    alsoAsks: actionsThatShow("event", "stream"),
    // A member takes deliveries from the others, which is more than reading.
    costs: () => ["events:subscribe"],
    summary: "Deliveries to one member of a consumer group; each goes to one member at a time.",
    input: Type.Object({
      namespace: text,
      name: Type.String(),
      consumerId: Type.String(),
      clientId: Type.String(),
      withStart: Type.Boolean(),
    }),
    about: ({ name, pattern }: { name: string; pattern?: string }) => [
      ...about(name, pattern),
      ...(pattern ? allOf(parsePattern(pattern)) : []),
    ],
    rpc: rpcStream(
      PubSubService.method.joinConsumerGroup,
      (m) => ({
        namespace: m.namespace,
        name: m.groupName,
        consumerId: m.consumerId,
        clientId: m.clientId,
        withStart: m.withStart,
      }),
      ({ subscriptionId, pattern, delivery }: MemberMessage) =>
        delivery
          ? toEventMessage(
              { id: subscriptionId, includeMetadata: true, pattern: parsePattern(pattern) },
              delivery,
            )
          : { subscriptionId },
    ),
    async *handle(request, call, permit) {
      const { name } = request;
      let membership: Awaited<ReturnType<Groups["join"]>>;
      let reads = "";
      const deliveries = streams.carry(call.signal, async (sink) => {
        membership = await groups.join(call.environmentId, request, {
          deliver: (delivery, isStillHeld) => sink.deliver(delivery, isStillHeld),
          async permit(pattern) {
            await permit({ name, pattern });
            reads = pattern;
          },
          ended: (fault) => sink.end(fault),
        });
        return membership;
      });
      for await (const delivery of deliveries) {
        if (!delivery) call.admitted?.();
        if (delivery || request.withStart) yield { subscriptionId: membership!.id, pattern: reads, delivery };
      }
    },
  }),
];
