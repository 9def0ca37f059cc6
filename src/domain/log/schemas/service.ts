import { createHash } from "node:crypto";
import { breather } from "../../../kit/breather.ts";
import { CelBudget } from "../../../kit/cel/cel.ts";
import type { Instant } from "../../../kit/clock.ts";
import { Fault, invalid, missing } from "../../../kit/fault.ts";
import { compileInSteps, SchemaError } from "../../../kit/json-schema/json-schema.ts";
import { pageSize } from "../../../kit/page.ts";
import { requirePayload, storedJson } from "../../../kit/payload-json.ts";
import type { Basics, Session } from "../../../store/store.ts";
import { checkEnforcement } from "./enforcement.ts";
import {
  schemasBytesMax,
  schemasMax,
  trafficHoursDefault,
  trafficHoursMax,
  upcastItemsAnEvent,
  upcastPageCharsMax,
  upcastPageItemsMax,
} from "./limits.ts";
import type { SchemaRow } from "./rows.ts";
import * as rows from "./rows.ts";
import { type RegisterSchemaInput, requireRegistrable, requireVersion, type SchemaMode } from "./rules.ts";
import { type UpcastChain, upcastChain, upcastOf } from "./upcast.ts";

export type { Enforcement, SchemaCheck } from "./enforcement.ts";
export type { EventSchemas, GovernedEvent, SchemaMark, SchemaVerdict } from "./governed.ts";
export type { SchemaHead, SchemaRow } from "./rows.ts";
export type { Upcasted, UpcastStep } from "./upcast.ts";

export interface ListSchemasInput {
  eventName: string | undefined;
  limit: number | undefined;
  offset: number;
}

export interface TestUpcastInput {
  eventName: string;
  fromVersion: number;
  toVersion: number;
  data: unknown;
}

/** The part of a stored event that is brought up. */
export interface StoredData {
  name: string;
  version: number;
  data: string;
  redacted_at: Instant | null;
}

/** Schemas of events, by name and version. A name with any version is governed: see `governed.ts`. */
export type Schemas = ReturnType<typeof openSchemas>;

/** The part that brings stored events up for those who read them. */
export type Upcasts = Pick<Schemas, "broughtUp">;

/** What became of the schemas of an environment. */
export type SchemaChange = { environmentId: string } & (
  | { change: "registered" | "deleted"; eventName: string; version: number }
  | { change: "enforcement"; mode: SchemaMode }
);

export interface SchemasDeps extends Basics<"store" | "clock"> {
  /** Locks the environment against deletion until the transaction ends; throws `not_found` if it is gone. */
  shareEnvironment: (session: Session, environmentId: string) => Promise<void>;
  /** Makes flushes of the environment read what they decide by again. Locks the environment's head. */
  raiseDefinitions: (session: Session, environmentId: string) => Promise<void>;
  /** Called after the commit, for subscribers of frames. */
  announce: (change: SchemaChange) => void;
}

export function openSchemas(deps: SchemasDeps) {
  const { store, clock, shareEnvironment, raiseDefinitions, announce } = deps;

  const chain = (environmentId: string, found: readonly SchemaRow[]): UpcastChain =>
    upcastChain(found, { clock, environmentId });

  return {
    /**
     * The text of a version never changes: the same again changes nothing, another is `already_exists`. Emits
     * that are decided after the commit obey it, at every node.
     */
    async register(environmentId: string, input: RegisterSchemaInput) {
      const wanted = { ...input, version: input.version === 0 ? 1 : input.version };
      requireRegistrable(wanted);
      await requireSchema(deps, environmentId, wanted.schemaJson);
      const schema: SchemaRow = {
        event_name: wanted.eventName,
        version: wanted.version,
        hash: createHash("sha256").update(wanted.schemaJson).digest("hex"),
        schema_json: wanted.schemaJson,
        description: wanted.description,
        created_at: clock.now(),
      };
      const registered = await store.write(async (session) => {
        await shareEnvironment(session, environmentId);
        const inserted = await rows.insertSchema(session, environmentId, schema);
        if (inserted === 0) {
          const known = await rows.schemaAt(session, environmentId, schema.event_name, schema.version);
          if (known?.hash !== schema.hash) throw taken(schema);
          return { schema: known, created: false };
        }
        await raiseDefinitions(session, environmentId);
        // The head is locked: of two registrations at once both are counted by the second.
        requireRoom(await rows.totalsOf(session, environmentId));
        return { schema, created: true };
      });
      const { eventName, version } = wanted;
      if (registered.created) announce({ environmentId, eventName, version, change: "registered" });
      return registered;
    },

    /** Version 0 is the latest. */
    async get(environmentId: string, eventName: string, version: number): Promise<SchemaRow> {
      if (version !== 0) requireVersion("version", version);
      const found = await rows.schemaAt(store, environmentId, eventName, version);
      if (!found) throw missingSchema(eventName, version);
      return found;
    },

    async list(environmentId: string, { eventName, limit, offset }: ListSchemasInput) {
      const [schemas, totalCount] = await Promise.all([
        rows.listSchemas(store, environmentId, { eventName, limit: pageSize(limit), offset }),
        rows.countSchemas(store, environmentId, eventName),
      ]);
      return { schemas, totalCount };
    },

    async remove(environmentId: string, eventName: string, version: number) {
      requireVersion("version", version);
      await store.write(async (session) => {
        if ((await rows.deleteSchema(session, environmentId, eventName, version)) === 0)
          throw missingSchema(eventName, version);
        await raiseDefinitions(session, environmentId);
      });
      announce({ environmentId, eventName, version, change: "deleted" });
    },

    /** Brings data up from one version to another, 0 for the latest, and stores nothing. */
    async testUpcast(environmentId: string, { eventName, fromVersion, toVersion, data }: TestUpcastInput) {
      requireVersion("fromVersion", fromVersion);
      requirePayload("data", data);
      const versions = chain(environmentId, await rows.schemasOfNames(store, environmentId, [eventName]));
      const to = toVersion === 0 ? versions.latest : toVersion;
      if (!versions.has(to)) throw missingSchema(eventName, to);
      if (to < fromVersion) throw invalid("toVersion", "must not be below fromVersion");
      return versions.apply(data, fromVersion, to);
    },

    /**
     * Older events brought up to this version, where their name has it. An event that cannot be, or that is
     * beyond `upcastPageCharsMax` or `upcastPageItemsMax` of its page, stays as it was emitted.
     */
    async broughtUp<Row extends StoredData>(environmentId: string, events: readonly Row[], version: number) {
      requireVersion("schemaVersion", version);
      const names = [...new Set(events.map(({ name }) => name))];
      const found = names.length === 0 ? [] : await rows.schemasOfNames(store, environmentId, names);
      const byName = Map.groupBy(found, ({ event_name }) => event_name);
      const chains = new Map(names.map((name) => [name, chain(environmentId, byName.get(name) ?? [])]));
      const brought = [];
      const budget = new CelBudget(upcastPageItemsMax);
      let chars = 0;
      for (const event of events) {
        budget.grant(upcastItemsAnEvent);
        const isRoom = chars <= upcastPageCharsMax;
        const next = isRoom ? await upTo(event, chains.get(event.name)!, { version, budget }) : event;
        chars += next.data.length;
        brought.push(next);
      }
      return brought;
    },

    check(environmentId: string, asked: { eventName: string | undefined; trafficWindowHours: number }) {
      const { eventName, trafficWindowHours } = asked;
      const hours = trafficWindowHours === 0 ? trafficHoursDefault : trafficWindowHours;
      if (hours < 1 || hours > trafficHoursMax)
        throw invalid("traffic_window_hours", `must be from 1 to ${trafficHoursMax}`);
      return checkEnforcement(deps, environmentId, { eventName, hours });
    },

    async setMode(environmentId: string, mode: SchemaMode): Promise<SchemaMode> {
      await store.write(async (session) => {
        if ((await rows.setMode(session, environmentId, mode, clock.now())) === 0)
          throw missing("environment", environmentId);
        await raiseDefinitions(session, environmentId);
      });
      announce({ environmentId, mode, change: "enforcement" });
      return mode;
    },
  };
}

/** Throws the fault that names the place of what cannot be used. */
async function requireSchema(
  { clock }: Pick<SchemasDeps, "clock">,
  environmentId: string,
  schemaJson: string,
): Promise<void> {
  const breathe = breather(clock, environmentId);
  try {
    for (const _step of compileInSteps(schemaJson)) await breathe();
    upcastOf(schemaJson);
  } catch (error) {
    throw error instanceof SchemaError ? invalid("schema_json", error.message) : error;
  }
}

function requireRoom({ count, bytes }: { count: number; bytes: number }): void {
  if (count > schemasMax)
    throw new Fault("resource_exhausted", `an environment has at most ${schemasMax} schemas of events`);
  if (bytes > schemasBytesMax)
    throw new Fault(
      "resource_exhausted",
      `the schemas of an environment have at most ${schemasBytesMax} bytes together`,
    );
}

const missingSchema = (eventName: string, version: number): Fault =>
  missing("schema", version === 0 ? eventName : `${eventName}/${version}`);

const taken = ({ event_name, version }: SchemaRow): Fault =>
  new Fault(
    "already_exists",
    `version: version ${version} of the schema of ${event_name} exists with another text`,
    { field: "version" },
  );

async function upTo<Event extends StoredData>(
  event: Event,
  versions: UpcastChain,
  { version, budget }: { version: number; budget: CelBudget },
): Promise<Event> {
  if (event.version >= version || event.redacted_at !== null || !versions.has(version)) return event;
  try {
    const { data } = await versions.apply(storedJson(event.data), event.version, version, budget);
    return { ...event, version, data: JSON.stringify(data) };
  } catch (error) {
    if (error instanceof Fault) return event;
    throw error;
  }
}
