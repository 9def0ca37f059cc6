import { openMembership } from "../subscriptions/membership.ts";
import { eitherWay, socketWay } from "../subscriptions/socket-line.ts";
import { openSubscription } from "../subscriptions/subscription.ts";
import { streamWay } from "../subscriptions/subscription-stream.ts";
import type {
  ConsumerGroup,
  GroupCalls,
  GroupSettings,
  InNamespace,
  SubscribeCalls,
  SubscribeOptions,
} from "../subscriptions/subscription-types.ts";
import type { Way } from "../subscriptions/subscription-ways.ts";
import { withUnits } from "../wire/duration.ts";
import { SvcError } from "../wire/errors.ts";
import { type KnownOptions, requireKnown } from "../wire/known-options.ts";
import { all, type Message, text, wordOf } from "../wire/read.ts";
import { once, safe } from "../wire/retry.ts";
import type { Transport } from "../wire/transport.ts";
import type { EventMap } from "../wire/types.ts";

export function readGroup(message: Message): ConsumerGroup {
  const { filterExpr, metadata } = message;
  return {
    id: text(message.id),
    namespace: text(message.namespace),
    name: text(message.name),
    pattern: text(message.pattern),
    ...(text(filterExpr) !== "" && { filter: text(filterExpr) }),
    ackMode: wordOf(message.ackMode, "ACK_MODE") as ConsumerGroup["ackMode"],
    maxInflight: Number(message.maxInflight ?? 0),
    maxRedeliveries: Number(message.maxRedeliveries ?? 0),
    redeliverDelayMs: Number(message.redeliverDelayMs ?? 0),
    ...(metadata !== undefined && { metadata: metadata as Record<string, unknown> }),
    status: wordOf(message.status, "CONSUMER_GROUP_STATUS") as ConsumerGroup["status"],
    memberCount: Number(message.memberCount ?? 0),
    createdAt: text(message.createdAt),
    updatedAt: text(message.updatedAt),
  };
}

type Change = Partial<GroupSettings> & { status?: ConsumerGroup["status"] } & InNamespace;

/** The fields of a change, by their names in the message. */
function fieldsOf(change: Change): Message {
  const given = withUnits("group", change, { redeliverDelayMs: "redeliverDelay" });
  const { namespace, filter, ackMode, status, ...rest } = given;
  return {
    ...rest,
    ...(filter !== undefined && { filterExpr: filter }),
    ...(ackMode !== undefined && { ackMode: `ACK_MODE_${ackMode.toUpperCase()}` }),
    ...(status !== undefined && { status: `CONSUMER_GROUP_STATUS_${status.toUpperCase()}` }),
  };
}

export function groupCalls(transport: Transport): GroupCalls {
  const call = (method: string, message: Message, options: { repeatable: boolean }) =>
    transport.rpc<Message>(`PubSubService/${method}`, message, options);
  const named = (name: string, { namespace }: InNamespace = {}) => ({
    name,
    ...(namespace !== undefined && { namespace }),
  });
  const groups: GroupCalls = {
    async create(name, { ifNotExists = false, ...settings }) {
      const message = { ...named(name, settings), ...fieldsOf(settings) };
      try {
        return readGroup(await call("CreateConsumerGroup", message, once));
      } catch (error) {
        const isThere = error instanceof SvcError && error.code === "already_exists";
        if (!ifNotExists || !isThere) throw error;
        return groups.get(name, settings);
      }
    },
    get: async (name, options) => readGroup(await call("GetConsumerGroup", named(name, options), safe)),
    async list({ status, ...page } = {}) {
      const answer = await call(
        "ListConsumerGroups",
        { ...page, ...fieldsOf({ ...(status && { status }) }) },
        safe,
      );
      return {
        groups: all(answer.groups, readGroup),
        ...(text(answer.nextCursor) !== "" && { nextCursor: text(answer.nextCursor) }),
        totalCount: Number(answer.totalCount ?? 0),
      };
    },
    async update(name, change) {
      const fields = fieldsOf(change);
      // A mask, so that an empty filter is taken as one; what is undefined stays as it is.
      const given = Object.keys(fields).filter((field) => fields[field] !== undefined);
      const message = { group: { ...named(name, change), ...fields }, updateMask: given.join(",") };
      return readGroup(await call("UpdateConsumerGroup", message, safe));
    },
    async delete(name, options) {
      await call("DeleteConsumerGroup", named(name, options), once);
    },
    join: (name, options, handler) => openMembership({ transport, groups, name }, options, handler as never),
  };
  return groups;
}

const known: KnownOptions<SubscribeOptions> = {
  ...{ filter: true, replay: true, topicOnly: true, includeMetadata: true, after: true, signal: true },
  ...{ over: true, bufferMax: true, onGap: true, onNotice: true },
};

export function subscribeCalls<Events extends EventMap>(transport: Transport): SubscribeCalls<Events> {
  const stream = streamWay(transport);
  let socket: Way | undefined;
  const wayOf = (over: NonNullable<SubscribeOptions["over"]>): Way => {
    if (over === "connect" || (over === "auto" && typeof WebSocket === "undefined")) return stream;
    if (typeof WebSocket === "undefined")
      throw new TypeError("over: there are no WebSockets here (Node has them from 22 on)");
    socket ??= socketWay(transport);
    return eitherWay(socket, stream, over === "websocket");
  };
  return {
    subscribe(pattern, options = {}, onDelivery) {
      requireKnown("subscribe", options, known);
      return openSubscription({ way: wayOf(options.over ?? "auto"), pattern }, options, onDelivery);
    },
  };
}
