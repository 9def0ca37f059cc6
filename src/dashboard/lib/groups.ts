import { rpc } from "./api.ts";
import { instantOf } from "./format.ts";
import type { RowsPage } from "./pages.ts";

/** A consumer group as the pages show it. */
export interface GroupView {
  namespace: string;
  name: string;
  pattern: string;
  filter: string;
  status: string;
  ackMode: string;
  backpressure: string;
  maxInflight: number;
  maxRedeliveries: number;
  redeliverDelayMs: number;
  position: string;
  members: number;
  held: number;
  dropped: number;
  givenUp: number;
  createdAt: number | undefined;
}

interface GroupAnswer {
  namespace?: string;
  name?: string;
  pattern?: string;
  filterExpr?: string;
  status?: string;
  ackMode?: string;
  backpressure?: string;
  maxInflight?: number;
  maxRedeliveries?: number;
  redeliverDelayMs?: number;
  position?: string;
  memberCount?: number;
  inflightCount?: number;
  droppedCount?: string;
  givenUpCount?: string;
  createdAt?: string;
}

/** `ACK_MODE_MANUAL` as `manual`. */
const wordOf = (text: string | undefined): string => (text ?? "").replace(/^.*_/, "").toLowerCase();

const groupOf = (m: GroupAnswer): GroupView => ({
  ...{
    namespace: m.namespace ?? "",
    name: m.name ?? "",
    pattern: m.pattern ?? "",
    filter: m.filterExpr ?? "",
  },
  ...{ status: wordOf(m.status), ackMode: wordOf(m.ackMode), backpressure: wordOf(m.backpressure) },
  ...{ maxInflight: m.maxInflight ?? 0, maxRedeliveries: m.maxRedeliveries ?? 0 },
  ...{ redeliverDelayMs: m.redeliverDelayMs ?? 0, position: m.position ?? "0" },
  ...{ members: m.memberCount ?? 0, held: m.inflightCount ?? 0 },
  ...{ dropped: Number(m.droppedCount ?? 0), givenUp: Number(m.givenUpCount ?? 0) },
  createdAt: instantOf(m.createdAt),
});

export async function listGroups(cursor: string, signal: AbortSignal): Promise<RowsPage<GroupView>> {
  const { groups = [], nextCursor } = await rpc<{ groups?: GroupAnswer[]; nextCursor?: string }>(
    "PubSubService",
    "ListConsumerGroups",
    { limit: 100, cursor },
    signal,
  );
  return { rows: groups.map(groupOf), next: nextCursor || undefined };
}

/** A delivery that is not acknowledged. */
export interface HeldView {
  eventId: string;
  position: string;
  attempt: number;
  /** Who has it; empty while it waits for its next attempt. */
  consumer: string;
  dueAt: number | undefined;
}

export interface MemberView {
  consumer: string;
  client: string;
  joinedAt: number | undefined;
}

/** A group with what it is about to do. */
export interface WholeGroup {
  group: GroupView;
  behind: number;
  members: readonly MemberView[];
  deliveries: readonly HeldView[];
}

export async function getGroup(namespace: string, name: string, signal: AbortSignal): Promise<WholeGroup> {
  const m = await rpc<
    GroupAnswer & {
      behind?: string;
      members?: { consumerId?: string; clientId?: string; joinedAt?: string }[];
      deliveries?: {
        eventId?: string;
        sequence?: string;
        attempt?: number;
        consumerId?: string;
        dueAt?: string;
      }[];
    }
  >("PubSubService", "GetConsumerGroup", { namespace, name, withDeliveries: true }, signal);
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
