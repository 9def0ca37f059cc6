import type { JsonObject, MessageInitShape } from "@bufbuild/protobuf";
import { type Static, Type } from "@sinclair/typebox";
import { actionsThatShow, screenOfKinds } from "../../../../gate/things.ts";
import {
  type PollProjectionEventsResponseSchema,
  ProjectionEventKind,
  type ProjectionEventSchema,
  ProjectionService,
} from "../../../../gen/svc/v1/projection_pb.ts";
import { rfc3339 } from "../../../../kit/clock.ts";
import { invalid } from "../../../../kit/fault.ts";
import {
  type Call,
  inJson,
  nothing,
  type Operation,
  type Permit,
  rpc,
  rpcStream,
  stream,
  unary,
} from "../../../../kit/operation.ts";
import { jsonText, storedJson } from "../../../../kit/payload-json.ts";
import { payload, timestampOf } from "../../../../kit/wkt.ts";
import type { PartitionedEvent } from "../batches.ts";
import { projectionSavesMax, projectionStateBytesMax } from "../limits.ts";
import {
  batchSizeOf,
  buildingOf,
  eventPositionOf,
  partitionOf,
  positionOf,
  projectionThings,
  type RunnerInput,
  runnerOf,
  timeOf,
} from "../rules.ts";
import { fromRunner, fromSaveBody, fromSavesBody, fromState, plainPayload, runnerFields } from "../wire.ts";
import type { Delivered } from "./deliveries.ts";
import type { SavedState } from "./saves.ts";
import type { Runners } from "./service.ts";
import type { ProjectionStreams, RunnerMessage } from "./stream.ts";

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

const toStreamed = ({
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

function toPolled(delivered: Delivered): MessageInitShape<typeof PollProjectionEventsResponseSchema> {
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
function toPolledBody(delivered: Delivered): unknown {
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

const text = Type.Optional(Type.String());
const count = Type.Optional(Type.Integer());
const runner = { runnerId: text, fence: count, generation: count };

const Poll = Type.Object({ name: Type.String(), batchSize: count, partition: text, ...runner });
const Stream = Type.Object({ ...Poll.properties, acceptHeartbeats: Type.Optional(Type.Boolean()) });
const State = Type.Object({
  partitionKey: text,
  state: Type.Optional(Type.Unknown()),
  lastEventId: text,
  lastEventSeq: count,
  lastEventAt: Type.Optional(Type.Number()),
});
const Save = Type.Object({ name: Type.String(), states: Type.Array(State), ...runner });
const Ack = Type.Object({ name: Type.String(), lastEventId: text, lastEventSeq: count, ...runner });
const Failure = Type.Object({
  name: Type.String(),
  partitionKey: text,
  eventId: text,
  eventSeq: count,
  message: text,
  ...runner,
});

/** What a runner gets are events, so that policies about these count too. */
interface EventsAbout {
  name: string;
  events?: readonly string[];
}
const about = ({ name, events = [] }: EventsAbout) => projectionThings(name, events);
const alsoAsks = actionsThatShow("event", "stream");

const keyOf = (call: Call, name: string) => ({ environment_id: call.environmentId, name });
const whoIs = (call: Call, fields: Partial<RunnerInput>) =>
  runnerOf(runnerFields(fields), { id: call.caller.id, address: call.address });

/**
 * Asks about the projection's events if a policy may keep some from the caller, or may do so later in a long
 * call; answers what it asked about, because a change of the definition must not give other events.
 */
async function permitEvents(
  runners: Runners,
  call: Call,
  name: string,
  { permit, isLong }: { permit: Permit; isLong: boolean },
): Promise<{ permitted?: string }> {
  if (!isLong && !(await screenOfKinds(call, "event", "stream"))) return {};
  const permitted = await runners.eventsOf(keyOf(call, name));
  await permit({ name, events: JSON.parse(permitted) as string[] });
  return { permitted };
}

const manage = { action: "projections:manage", isRoutine: true } as const;

export const runnerOperations = (runners: Runners, streams: ProjectionStreams): Operation[] => [
  ...feedOperations(runners, streams),
  ...resultOperations(runners),
];

const feedOperations = (runners: Runners, streams: ProjectionStreams): Operation[] => [
  unary({
    name: "projections.poll",
    ...manage,
    summary: "The next events of a projection for its runner, which gets its lease.",
    held: true,
    input: Poll,
    about,
    alsoAsks,
    rpc: rpc(
      ProjectionService.method.pollProjectionEvents,
      (m) => ({ name: m.name, batchSize: m.batchSize, partition: m.partition, ...fromRunner(m) }),
      toPolled,
      { ...inJson, encode: toPolledBody },
    ),
    async handle({ name, batchSize = 0, partition, ...who }, call, permit) {
      const ask = {
        ...{ key: keyOf(call, name), runner: whoIs(call, who), limit: batchSizeOf(batchSize) },
        ...{ partition: partition ? partitionOf("partition", partition) : undefined, signal: call.signal },
      };
      const permitted = await permitEvents(runners, call, name, { permit, isLong: false });
      return runners.poll({ ...ask, ...permitted });
    },
  }),
  stream({
    name: "projections.stream",
    ...manage,
    summary: "The events of a projection as they happen, for its runner.",
    special: { refusesByStatus: true },
    input: Stream,
    about,
    alsoAsks,
    rpc: rpcStream(
      ProjectionService.method.streamProjectionEvents,
      (m) => ({
        ...{ name: m.name, batchSize: m.batchSize, partition: m.partition, ...fromRunner(m) },
        acceptHeartbeats: m.acceptHeartbeats,
      }),
      toStreamed,
    ),
    async *handle({ name, batchSize = 0, partition = "", acceptHeartbeats = false, ...who }, call, permit) {
      const ask = {
        ...{ key: keyOf(call, name), runner: whoIs(call, who), limit: batchSizeOf(batchSize) },
        ...{ callerId: call.caller.id, isPart: partition !== "", signal: call.signal },
      };
      const permitted = await permitEvents(runners, call, name, { permit, isLong: true });
      const open = await streams.admit({ ...ask, ...permitted });
      call.admitted?.();
      for await (const one of open.messages()) if (one.event || acceptHeartbeats) yield one;
    },
  }),
];

const resultOperations = (runners: Runners): Operation[] => [
  unary({
    name: "projections.save",
    ...manage,
    summary: "Stores states of partitions with the events they are folded up to; the cursor moves with them.",
    input: Save,
    about,
    rpc: [
      rpc(
        ProjectionService.method.saveProjectionState,
        (m) => ({ name: m.name, states: [fromState(m)], ...fromRunner(m) }),
        () => ({ ok: true }),
        { decode: fromSaveBody },
      ),
      rpc(
        ProjectionService.method.saveProjectionStates,
        (m) => ({ name: m.name, states: m.states.map(fromState), ...fromRunner(m) }),
        () => ({ ok: true }),
        { decode: fromSavesBody },
      ),
    ],
    handle: ({ name, states, ...who }, call) =>
      runners.save({ key: keyOf(call, name), runner: whoIs(call, who), states: statesOf(states) }),
  }),
  unary({
    name: "projections.ack",
    ...manage,
    summary: "Says up to which event an external projection has handled everything.",
    input: Ack,
    about,
    rpc: rpc(
      ProjectionService.method.ackProjectionEvents,
      (m) => ({
        ...{ name: m.name, lastEventId: m.lastEventId, lastEventSeq: Number(m.lastEventSeq) },
        ...fromRunner(m),
      }),
      () => ({ ok: true }),
      inJson,
    ),
    handle: ({ name, lastEventSeq = 0, lastEventId = "", ...who }: Static<typeof Ack>, call) =>
      runners.ack({
        ...{ key: keyOf(call, name), runner: whoIs(call, who), lastEventId: eventIdOf(lastEventId) },
        lastPosition: positionOf("last_event_seq", lastEventSeq),
      }),
  }),
  unary({
    name: "projections.fail",
    action: "projections:manage",
    summary: "Stops a partition before an event whose handler failed for good.",
    input: Failure,
    about,
    rpc: rpc(
      ProjectionService.method.reportProjectionError,
      (m) => ({
        ...{ name: m.name, partitionKey: m.partitionKey, eventId: m.eventId, message: m.message },
        ...{ eventSeq: Number(m.eventSeq), ...fromRunner(m) },
      }),
      nothing,
    ),
    handle: ({ name, partitionKey, eventId = "", eventSeq = 0, message = "", ...who }, call) =>
      runners.fail({
        ...{ key: keyOf(call, name), runner: whoIs(call, who), eventId: eventIdOf(eventId), message },
        partition: partitionOf("partition_key", partitionKey),
        position: eventPositionOf("event_seq", eventSeq),
      }),
  }),
];

function statesOf(given: readonly Static<typeof State>[]): SavedState[] {
  if (given.length === 0) throw invalid("states", "must name at least one partition");
  if (given.length > projectionSavesMax) throw invalid("states", `at most ${projectionSavesMax} in one save`);
  const states = given.map(({ partitionKey, state, lastEventSeq = 0, lastEventId = "", lastEventAt }) => ({
    partition: partitionOf("partition_key", partitionKey),
    state: jsonText("state", state ?? null, projectionStateBytesMax),
    lastEventId: eventIdOf(lastEventId),
    lastPosition: positionOf("last_event_seq", lastEventSeq),
    lastEventAt: timeOf("last_event_time", lastEventAt),
  }));
  if (new Set(states.map(({ partition }) => partition)).size < states.length)
    throw invalid("states", "must name each partition once");
  return states;
}

const eventIdCharsMax = 80;
/** Ids of events are short; what else is sent in their place is cut. */
const eventIdOf = (id: string): string => id.toWellFormed().replaceAll("\0", "").slice(0, eventIdCharsMax);
