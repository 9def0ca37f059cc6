import type { JsonObject, MessageInitShape } from "@bufbuild/protobuf";
import {
  type PollProjectionEventsResponseSchema,
  ProjectionEventKind,
  type ProjectionEventSchema,
} from "../../../../gen/svc/v1/projection_pb.ts";
import { rfc3339 } from "../../../../kit/clock.ts";
import { storedJson } from "../../../../kit/payload-json.ts";
import { payload, timestampOf } from "../../../../kit/wkt.ts";
import type { PartitionedEvent } from "../batches.ts";
import { buildingOf } from "../rules.ts";
import { plainPayload } from "../wire.ts";
import type { Delivered } from "./deliveries.ts";
import type { RunnerMessage } from "./streams.ts";

/** The event's own metadata, and its partition where runners look for it. */
const metadataOf = ({ metadata, partition }: PartitionedEvent): JsonObject => ({
  ...(metadata === null ? {} : (storedJson(metadata) as JsonObject)),
  __partition: partition,
});

const toEvent = (event: PartitionedEvent): MessageInitShape<typeof ProjectionEventSchema> => ({
  ...{ id: event.id, name: event.name, seq: BigInt(event.position), source: event.source },
  ...payload("data", "dataValue", event.data),
  timestamp: timestampOf(event.at),
  metadata: metadataOf(event),
  ...(event.version > 1 && { version: event.version }),
});

export const toStreamed = ({
  event,
  fence,
  generation,
  building,
}: RunnerMessage): MessageInitShape<typeof ProjectionEventSchema> => ({
  ...(event ? toEvent(event) : { kind: ProjectionEventKind.HEARTBEAT, buildingGeneration: BigInt(building) }),
  fence: BigInt(fence),
  generation: BigInt(generation),
});

/** Zero where the runner stands by. */
const leaseOf = ({ state, held, generation }: Delivered) => {
  const fence = state === "standby" ? 0 : generation.fence;
  return { fence, generation: generation.generation, building: buildingOf(held) };
};

export function toPolled(delivered: Delivered): MessageInitShape<typeof PollProjectionEventsResponseSchema> {
  const { events, current, generation } = delivered;
  const lease = leaseOf(delivered);
  return {
    events: events.map(toEvent),
    ...payload("currentState", "currentStateValue", current?.state ?? null),
    lastEventSeq: BigInt(generation.position),
    fence: BigInt(lease.fence),
    generation: BigInt(lease.generation),
    buildingGeneration: BigInt(lease.building),
  };
}

/** The same in plain JSON: payloads never become messages on the way of many events. */
export function toPolledBody(delivered: Delivered): unknown {
  const { events, current, generation } = delivered;
  const lease = leaseOf(delivered);
  return {
    events: events.map((event) => ({
      ...{ id: event.id, name: event.name, ...plainPayload("data", "dataValue", event.data) },
      ...{ seq: `${event.position}`, timestamp: rfc3339(event.at), source: event.source },
      metadata: metadataOf(event),
      ...(event.version > 1 && { version: event.version }),
    })),
    ...plainPayload("currentState", "currentStateValue", current?.state ?? null),
    lastEventSeq: `${generation.position}`,
    ...(lease.fence > 0 && { fence: `${lease.fence}` }),
    generation: `${lease.generation}`,
    ...(lease.building > 0 && { buildingGeneration: `${lease.building}` }),
  };
}
