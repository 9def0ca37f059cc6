import { requireEventName, requireStorable } from "../../../kit/event-names.ts";
import { Fault, invalid } from "../../../kit/fault.ts";
import type { Breach } from "../../../kit/json-schema/json-schema.ts";
import { descriptionBytesMax, schemaVersionMax } from "./limits.ts";

/** What becomes of an event that breaks its schema: written all the same, written with a mark, or refused. */
export const schemaModes = ["off", "warn", "enforce"] as const;
export type SchemaMode = (typeof schemaModes)[number];

export interface RegisterSchemaInput {
  eventName: string;
  /** 0 means 1. */
  version: number;
  /** A JSON Schema, as text. */
  schemaJson: string;
  description: string;
}

export function requireVersion(field: string, version: number): void {
  if (!Number.isInteger(version) || version < 1 || version > schemaVersionMax)
    throw invalid(field, `must be a whole number from 1 to ${schemaVersionMax}`);
}

/** Throws the fault that names the field. The schema itself is looked at when it is compiled. */
export function requireRegistrable({
  eventName,
  version,
  schemaJson,
  description,
}: RegisterSchemaInput): void {
  requireEventName("event_name", eventName);
  requireVersion("version", version);
  if (schemaJson === "") throw invalid("schema_json", "must not be empty");
  requireStorable("schema_json", schemaJson);
  requireStorable("description", description);
  if (Buffer.byteLength(description) > descriptionBytesMax)
    throw invalid("description", `at most ${descriptionBytesMax} bytes`);
}

/** How much of a place inside the data or the schema is told. */
const placeCharsMax = 200;

/** Names of members may be long, and hold what no database keeps. */
export const placeText = (place: string): string =>
  place.slice(0, placeCharsMax).toWellFormed().replaceAll("\0", "\ufffd");

/** The refusal of data by a rule of its schema; `at` is the event's place in the caller's batch. */
export function brokenRule(
  { name, version, at = "" }: { name: string; version: number; at?: string | undefined },
  breach: Breach,
): Fault {
  const place = breach.at === "" ? "" : `${placeText(breach.at)} `;
  const field = `${at}data`;
  return new Fault(
    "invalid_argument",
    `${field}: ${place}${breach.text} (${breach.keyword}, version ${version} of the schema of ${name})`,
    { field, code: "SCHEMA_VIOLATION" },
  );
}

export function unknownVersion(
  { name, version, at = "" }: { name: string; version: number; at?: string | undefined },
  registered: readonly number[],
): Fault {
  const field = `${at}version`;
  return new Fault(
    "invalid_argument",
    `${field}: ${name} has no schema of version ${version} (registered: ${registered.slice(0, 20).join(", ")})`,
    { field, code: "SCHEMA_VERSION_UNKNOWN" },
  );
}
