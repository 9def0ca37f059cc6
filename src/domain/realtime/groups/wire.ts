import type { JsonObject, MessageInitShape } from "@bufbuild/protobuf";
import {
  AckMode,
  AckType,
  BackpressureMode,
  ConsumerGroupSchema,
  ConsumerGroupStatus,
} from "../../../gen/svc/v1/pubsub_pb.ts";
import { invalid } from "../../../kit/fault.ts";
import { fieldsFor } from "../../../kit/message-shape.ts";
import { storedJson } from "../../../kit/payload-json.ts";
import { timestampOf } from "../../../kit/wkt.ts";
import type { GroupInput, ListedGroup, ShownGroup } from "./service.ts";

const ackModes = { auto: AckMode.AUTO, manual: AckMode.MANUAL } as const;
const pressures = {
  drop: BackpressureMode.DROP,
  block: BackpressureMode.BLOCK,
  buffer: BackpressureMode.BUFFER,
} as const;
const statuses = { active: ConsumerGroupStatus.ACTIVE, paused: ConsumerGroupStatus.PAUSED } as const;
const verdicts = { ack: AckType.ACK, nak: AckType.NAK, term: AckType.TERM } as const;

/** The word for a number of the wire's enum; undefined for 0, the unset value. */
function wordOf<Word extends string>(
  field: string,
  words: Record<Word, number>,
  value: number,
): Word | undefined {
  if (value === 0) return undefined;
  const found = (Object.keys(words) as Word[]).find((word) => words[word] === value);
  if (!found) throw invalid(field, `must be one of ${Object.keys(words).join(", ")}`);
  return found;
}

interface GroupMessage {
  pattern: string;
  filterExpr: string;
  ackMode: number;
  backpressure: number;
  maxInflight: number;
  maxRedeliveries: number;
  redeliverDelayMs: number;
  metadata?: JsonObject | undefined;
  status?: number;
}

export const fromGroup = (m: GroupMessage): GroupInput => ({
  pattern: m.pattern,
  filterExpr: m.filterExpr,
  ackMode: wordOf("ack_mode", ackModes, m.ackMode),
  backpressure: wordOf("backpressure", pressures, m.backpressure),
  maxInflight: m.maxInflight,
  maxRedeliveries: m.maxRedeliveries,
  redeliverDelayMs: m.redeliverDelayMs,
  ...(m.metadata && { metadata: m.metadata }),
  ...(m.status !== undefined && { status: fromStatus(m.status) }),
});

export function fromStatus(value: number): GroupInput["status"] {
  if (value === ConsumerGroupStatus.DELETED)
    throw invalid(
      "status",
      "must not be deleted: DeleteConsumerGroup deletes a group, and a deleted group is not listed",
    );
  return wordOf("status", statuses, value);
}

export function fromAckType(value: number): keyof typeof verdicts {
  const word = wordOf("ack_type", verdicts, value);
  if (!word) throw invalid("ack_type", "must be one of ack, nak, term");
  return word;
}

const ofGroup = fieldsFor(ConsumerGroupSchema);

const fieldsOf = (group: ListedGroup) => ({
  ...ofGroup(group, "id namespace name pattern filter_expr max_inflight max_redeliveries redeliver_delay_ms"),
  ...ofGroup(
    group,
    "member_count created_at updated_at position inflight_count dropped_count given_up_count",
  ),
  ackMode: ackModes[group.ack_mode],
  backpressure: pressures[group.backpressure],
  ...(group.metadata !== null && { metadata: storedJson(group.metadata) as JsonObject }),
  status: statuses[group.status],
});

export const toGroup: (group: ListedGroup) => MessageInitShape<typeof ConsumerGroupSchema> = fieldsOf;

/** Subscriptions with the same pattern and options share an id on any socket: their own tells them apart. */
const ownName = (consumerId: string, memberId: string): string =>
  consumerId.startsWith("sub_") ? memberId : consumerId;

export const toShownGroup = ({
  inside,
  ...group
}: ShownGroup): MessageInitShape<typeof ConsumerGroupSchema> => ({
  ...fieldsOf(group),
  ...(inside && {
    behind: BigInt(inside.behind),
    members: inside.members.map(({ id, consumer_id, client_id, joined_at }) => ({
      ...{ consumerId: ownName(consumer_id, id), clientId: client_id, joinedAt: timestampOf(joined_at) },
    })),
    deliveries: inside.deliveries.map(({ event_id, position, attempt, member_id, consumer_id, due_at }) => ({
      ...{ eventId: event_id, sequence: BigInt(position), attempt, dueAt: timestampOf(due_at) },
      consumerId: member_id === null ? "" : ownName(consumer_id, member_id),
    })),
  }),
});
