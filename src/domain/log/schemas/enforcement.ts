import { type Breathe, breather } from "../../../kit/breather.ts";
import type { Clock } from "../../../kit/clock.ts";
import { missing } from "../../../kit/fault.ts";
import {
  type CompiledSchema,
  compileInSteps,
  SchemaError,
  TooMuchToCheck,
} from "../../../kit/json-schema/json-schema.ts";
import { storedJson } from "../../../kit/payload-json.ts";
import type { Store } from "../../../store/store.ts";
import {
  checkedSchemasMax,
  trafficBytesMax,
  trafficComputeMsMax,
  trafficEventsMax,
  trafficKindsMax,
  trafficSliceMax,
} from "./limits.ts";
import * as rows from "./rows.ts";
import type { SchemaMode } from "./rules.ts";

export interface SchemaTraffic {
  version: number;
  /** The schema that the events were checked by when they came; empty when by none. */
  schemaHash: string;
  count: number;
}

export interface SchemaCheck {
  eventName: string;
  version: number;
  schemaHash: string;
  /** Whether there is data that it refuses. */
  asserts: boolean;
  compileError: string;
  /** Events of the window that would be refused now; those without a registered version under the latest. */
  traffic: SchemaTraffic[];
  /** There was more than was looked at. */
  trafficTruncated: boolean;
}

export interface Enforcement {
  mode: SchemaMode;
  schemas: SchemaCheck[];
  trafficWindowHours: number;
  /** Of the environment, or of the name that was asked for. */
  totalCount: number;
}

interface Checked extends SchemaCheck {
  schema: CompiledSchema | undefined;
}

/** What is left of the traffic that one call looks at. */
interface TrafficRoom {
  events: number;
  bytes: number;
  /** Of checks. */
  ms: number;
}

const hourMs = 3_600_000;

/** What is enforced, and what recent traffic would say to it. */
export async function checkEnforcement(
  { store, clock }: { store: Store; clock: Clock },
  environmentId: string,
  { eventName, hours }: { eventName: string | undefined; hours: number },
): Promise<Enforcement> {
  const mode = await rows.modeOf(store, environmentId);
  if (mode === undefined) throw missing("environment", environmentId);
  const breathe = breather(clock, environmentId);
  const [heads, totalCount] = await Promise.all([
    rows.listSchemas(store, environmentId, { eventName, limit: checkedSchemasMax, offset: 0 }),
    rows.countSchemas(store, environmentId, eventName),
  ]);
  const names = [...new Set(heads.map(({ event_name }) => event_name))];
  const since = clock.now() - hours * hourMs;
  const schemas: SchemaCheck[] = [];
  const room: TrafficRoom = { events: trafficEventsMax, bytes: trafficBytesMax, ms: trafficComputeMsMax };
  for (const name of names) {
    const checked: Checked[] = [];
    for (const row of await rows.schemasOfNames(store, environmentId, [name]))
      checked.push(await compiled(row, breathe));
    const isTruncated = await countRefused({ store, clock }, environmentId, {
      ...{ name, since, checked, breathe, room },
    });
    for (const { schema: _, ...check } of checked)
      schemas.push(isTruncated ? { ...check, trafficTruncated: true } : check);
  }
  return { mode, schemas: schemas.slice(0, checkedSchemasMax), trafficWindowHours: hours, totalCount };
}

async function compiled(row: rows.SchemaRow, breathe: Breathe): Promise<Checked> {
  const { event_name: eventName, version, hash: schemaHash } = row;
  const check = { eventName, version, schemaHash, traffic: [], trafficTruncated: false };
  const steps = compileInSteps(row.schema_json);
  try {
    for (;;) {
      await breathe();
      const step = steps.next();
      if (step.done) return { ...check, schema: step.value, asserts: step.value.asserts, compileError: "" };
    }
  } catch (error) {
    if (!(error instanceof SchemaError)) throw error;
    return { ...check, schema: undefined, asserts: false, compileError: error.message };
  }
}

/** Answers whether there was more traffic than it looked at. */
async function countRefused(
  { store, clock }: { store: Store; clock: Clock },
  environmentId: string,
  asked: { name: string; since: number; checked: readonly Checked[]; breathe: Breathe; room: TrafficRoom },
): Promise<boolean> {
  const { name, since, checked, breathe, room } = asked;
  let before: rows.TrafficRow | undefined;
  while (room.events > 0 && room.bytes > 0 && room.ms > 0) {
    const slice = await rows.trafficOf(store, environmentId, { name, since, before, limit: trafficSliceMax });
    for (const event of slice) {
      await breathe();
      room.bytes -= event.data.length;
      const began = clock.elapsed();
      if (!note(checked, event)) return true;
      room.ms -= clock.elapsed() - began;
    }
    room.events -= slice.length;
    before = slice.at(-1);
    if (slice.length < trafficSliceMax) return false;
  }
  return true;
}

/** False when there are too many kinds to tell apart. */
function note(checked: readonly Checked[], { version, data, schema_hash }: rows.TrafficRow): boolean {
  const own = checked.find((one) => one.version === version);
  if (own && !isRefused(own, data)) return true;
  const { traffic } = own ?? checked.at(-1)!;
  const schemaHash = schema_hash ?? "";
  const kind = traffic.find((one) => one.version === version && one.schemaHash === schemaHash);
  if (kind) kind.count++;
  else if (traffic.length === trafficKindsMax) return false;
  else traffic.push({ version, schemaHash, count: 1 });
  return true;
}

function isRefused({ schema }: Checked, data: string): boolean {
  if (!schema) return true;
  try {
    return schema.breachOf(storedJson(data)) !== undefined;
  } catch (error) {
    if (error instanceof TooMuchToCheck) return true;
    throw error;
  }
}
