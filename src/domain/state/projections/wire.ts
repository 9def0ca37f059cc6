import type { JsonObject, MessageInitShape } from "@bufbuild/protobuf";
import type { Duration, Timestamp, Value } from "@bufbuild/protobuf/wkt";
import type {
  GetProjectionResponseSchema,
  GetProjectionStatusResponseSchema,
  ProjectionHistoryEntrySchema,
  ProjectionInfoSchema,
} from "../../../gen/svc/v1/projection_pb.ts";
import { stated } from "../../../kit/cases.ts";
import { type Instant, parseRfc3339, rfc3339 } from "../../../kit/clock.ts";
import { invalid } from "../../../kit/fault.ts";
import { storedJson } from "../../../kit/payload-json.ts";
import { eachOf, instantOf, isJsonObject, jsonOf, payload, timestampOf } from "../../../kit/wkt.ts";
import type {
  ProjectionRevision,
  ProjectionStanding,
  ReadProjection,
  ShownProjection,
  SqlProjectionRow,
} from "./service.ts";

/** What every message of a runner says of it. */
export interface RunnerFields {
  runnerId?: string;
  fence?: number;
  generation?: number;
}

export const fromRunner = (m: { runnerId: string; fence?: bigint; generation: bigint }): RunnerFields => ({
  runnerId: m.runnerId,
  fence: Number(m.fence ?? 0n),
  generation: Number(m.generation),
});

/** Runner fields of a request that left some out. */
export const runnerFields = ({ runnerId = "", fence = 0, generation = 0 }: RunnerFields) => ({
  runnerId,
  fence,
  generation,
});

/** Milliseconds of a duration; undefined where none was sent. */
export const millisOf = (duration: Duration | undefined): number | undefined =>
  duration && Number(duration.seconds) * 1000 + Math.round(duration.nanos / 1_000_000);

interface StateMessage {
  partitionKey: string;
  state?: JsonObject | undefined;
  stateValue?: Value | undefined;
  lastEventId: string;
  lastEventSeq: bigint;
  lastEventTime?: Timestamp | undefined;
}

export const fromState = (m: StateMessage) => ({
  ...{ partitionKey: m.partitionKey, lastEventId: m.lastEventId, lastEventSeq: Number(m.lastEventSeq) },
  ...(m.state !== undefined && { state: m.state as unknown }),
  ...(m.stateValue !== undefined && { state: jsonOf(m.stateValue) }),
  ...(m.lastEventTime && { lastEventAt: instantOf(m.lastEventTime) }),
});

/** The year that some clients write for no time. */
const noTime = "0001-01-01";

function instantFrom(time: unknown): Instant | undefined {
  if (time === undefined || time === null || time === "") return undefined;
  if (typeof time === "string" && time.startsWith(noTime)) return undefined;
  const at = typeof time === "string" ? parseRfc3339(time) : undefined;
  if (at === undefined) throw invalid("last_event_time", "must be an RFC 3339 time");
  return at;
}

const stateNames = ["partitionKey", "state", "stateValue", "lastEventId", "lastEventSeq", "lastEventTime"];

/** The same from plain JSON: states never become messages, and may be any JSON value. */
function fromStateBody(body: Record<string, unknown>): Record<string, unknown> {
  const { state, stateValue, lastEventTime, ...rest } = body;
  const at = instantFrom(lastEventTime);
  const value = "stateValue" in body ? stateValue : state;
  return {
    ...rest,
    ...stated({ state: value, lastEventAt: at }),
  };
}

/** One state beside the runner's fields. */
export function fromSaveBody(body: Record<string, unknown>): Record<string, unknown> {
  const entries = Object.entries(body);
  const isOfState = ([name]: [string, unknown]) => stateNames.includes(name);
  const state = Object.fromEntries(entries.filter(isOfState));
  return { ...Object.fromEntries(entries.filter((one) => !isOfState(one))), states: [fromStateBody(state)] };
}

export function fromSavesBody(body: Record<string, unknown>): Record<string, unknown> {
  return body.states === undefined ? body : { ...body, states: eachOf(body.states, fromStateBody) };
}

/** What clients of `GetProjection` call a projection that is running. */
const readWord = (status: string): string => (status === "running" ? "active" : status);

/** Of a projection that is folded by SQL, as it was sent. */
const fromMade = (
  made: Pick<SqlProjectionRow, "table_sql" | "event_handlers" | "description"> | undefined,
) =>
  made
    ? {
        ...{ type: "sql", sqlDefinition: made.table_sql, description: made.description },
        eventHandlers: JSON.parse(made.event_handlers) as JsonObject,
      }
    : { type: "events" };

export const toInfo = (row: ShownProjection): MessageInitShape<typeof ProjectionInfoSchema> => ({
  ...{ name: row.name, mode: row.mode, status: row.status, partitionKey: row.partition_path },
  events: JSON.parse(row.events) as string[],
  version: row.version,
  versionFull: BigInt(row.version),
  lastEventSeq: BigInt(row.position),
  createdAt: timestampOf(row.created_at),
  updatedAt: timestampOf(row.updated_at),
  environmentId: row.environment_id,
  errorMessage: row.error_message ?? "",
  ...fromMade(row.made),
  ...(row.target !== null && { rebuildTargetSeq: BigInt(row.target) }),
});

export const toRevisionMessage = ({
  snapshot,
  ...entry
}: ProjectionRevision): MessageInitShape<typeof ProjectionHistoryEntrySchema> => {
  const { table_sql, event_handlers = "{}", description = "", ...row } = snapshot;
  return {
    ...{ eventId: entry.event_id, entityVersion: BigInt(entry.entity_version), name: entry.name },
    ...{ actorId: entry.actor_id, changeType: entry.change_type, recordedAt: timestampOf(entry.recorded_at) },
    projectionSnapshot: {
      ...{ name: row.name, mode: row.mode, status: row.status, partitionKey: row.partition_path },
      ...{ version: row.version, versionFull: BigInt(row.version), createdAt: timestampOf(row.created_at) },
      events: JSON.parse(row.events) as string[],
      ...fromMade(table_sql === undefined ? undefined : { table_sql, event_handlers, description }),
    },
  };
};

export const toProjection = ({
  held,
  generation,
  partition,
  state,
  made,
}: ReadProjection): MessageInitShape<typeof GetProjectionResponseSchema> => ({
  ...{ name: held.name, partition, mode: held.mode },
  registry: {
    ...toInfo({ ...held, position: generation.position, target: generation.target, made }),
    status: readWord(held.status),
  },
  ...(state && {
    ...payload("state", "stateValue", state.state),
    lastEventId: state.last_event_id ?? "",
    ...(state.last_event_at !== null && { lastEventTime: timestampOf(state.last_event_at) }),
    version: BigInt(state.version),
    stateLastEventSeq: BigInt(state.last_position),
    stateUpdatedAt: timestampOf(state.updated_at),
    stateEnvironmentId: held.environment_id,
  }),
});

/** The REST form: the state's own record inside the projection's. */
export const projectionJson = ({ held, generation, partition, state }: ReadProjection) => ({
  name: held.name,
  version: held.version,
  mode: held.mode,
  status: readWord(held.status),
  error_message: held.error_message ?? "",
  last_event_seq: generation.position,
  updated_at: rfc3339(held.updated_at),
  state: state
    ? {
        projection_name: held.name,
        environment_id: held.environment_id,
        partition_key: partition,
        state: state.state === null ? null : storedJson(state.state),
        last_event_id: state.last_event_id ?? "",
        last_event_seq: state.last_position,
        last_event_time: state.last_event_at === null ? `${noTime}T00:00:00Z` : rfc3339(state.last_event_at),
        version: state.version,
        updated_at: rfc3339(state.updated_at),
      }
    : null,
});

export const toStatus = ({
  held,
  generation,
  building,
  lag,
  rebuild,
}: ProjectionStanding): MessageInitShape<typeof GetProjectionStatusResponseSchema> => ({
  ...{ name: held.name, status: held.status, mode: held.mode },
  lastEventSeq: BigInt(generation.position),
  lag: BigInt(lag ?? 0),
  errorMessage: held.error_message ?? "",
  updatedAt: timestampOf(Math.max(held.updated_at, generation.saved_at)),
  ...(rebuild && {
    rebuildTargetSeq: BigInt(rebuild.target),
    rebuildStartCursor: BigInt(rebuild.start_position),
    rebuildStartedAt: timestampOf(rebuild.started_at),
  }),
  errorEventId: held.error_event_id ?? "",
  errorEventSeq: BigInt(held.error_position ?? 0),
  errorPartition: held.error_partition ?? "",
  generation: BigInt(held.generation),
  ...(building && {
    buildingGeneration: BigInt(building.generation),
    buildingSeq: BigInt(building.cursor_position),
  }),
  version: BigInt(held.version),
});

/** A stored payload in plain JSON: an object in the plain field, anything else in its twin. */
export function plainPayload(plain: string, twin: string, text: string | null): Record<string, unknown> {
  if (text === null) return {};
  const value = storedJson(text);
  return { [isJsonObject(value) ? plain : twin]: value };
}
