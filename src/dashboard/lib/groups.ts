import type { ConsumerGroup } from "../../gen/svc/v1/pubsub_pb.ts";
import { rpc } from "./api.ts";
import { instantOf } from "./format.ts";
import type { InJson } from "./messages.ts";
import type { RowsPage } from "./pages.ts";

/** A consumer group as the pages show it. */
export type GroupView = ReturnType<typeof groupOf>;

/** `ACK_MODE_MANUAL` as `manual`. */
const wordOf = (text: string | undefined): string => (text ?? "").replace(/^.*_/, "").toLowerCase();

const groupOf = (m: InJson<ConsumerGroup>) => ({
  ...{ namespace: m.namespace ?? "", name: m.name ?? "" },
  ...{ pattern: m.pattern ?? "", filter: m.filterExpr ?? "" },
  ...{ status: wordOf(m.status), ackMode: wordOf(m.ackMode), backpressure: wordOf(m.backpressure) },
  ...{ maxInflight: m.maxInflight ?? 0, maxRedeliveries: m.maxRedeliveries ?? 0 },
  ...{ redeliverDelayMs: m.redeliverDelayMs ?? 0, position: m.position ?? "0" },
  ...{ members: m.memberCount ?? 0, held: m.inflightCount ?? 0 },
  ...{ dropped: Number(m.droppedCount ?? 0), givenUp: Number(m.givenUpCount ?? 0) },
  createdAt: instantOf(m.createdAt),
});

export async function listGroups(cursor: string, signal: AbortSignal): Promise<RowsPage<GroupView>> {
  const asked = { limit: 100, cursor };
  const { groups = [], nextCursor } = await rpc("PubSubService", "ListConsumerGroups", asked, signal);
  return { rows: groups.map(groupOf), next: nextCursor || undefined };
}

/** A group with what it is about to do. */
export type WholeGroup = Awaited<ReturnType<typeof getGroup>>;

export async function getGroup(namespace: string, name: string, signal: AbortSignal) {
  const m = await rpc("PubSubService", "GetConsumerGroup", { namespace, name, withDeliveries: true }, signal);
  return {
    group: groupOf(m),
    behind: Number(m.behind ?? 0),
    members: (m.members ?? []).map(({ consumerId = "", clientId = "", joinedAt }) => ({
      ...{ consumer: consumerId, client: clientId, joinedAt: instantOf(joinedAt) },
    })),
    deliveries: (m.deliveries ?? []).map((one) => ({
      ...{ eventId: one.eventId ?? "", position: one.sequence ?? "", attempt: one.attempt ?? 0 },
      ...{ consumer: one.consumerId ?? "", dueAt: instantOf(one.dueAt) },
    })),
  };
}
