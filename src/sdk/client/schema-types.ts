import type { JsonSchemaText } from "../wire/standard-schema.ts";

export interface SchemaInfo {
  eventName: string;
  version: number;
  description: string;
  createdAt: string;
}

export interface EventSchema extends SchemaInfo {
  schema: JsonSchemaText;
}

export interface UpcastResult {
  data: unknown;
  /** The changes that the schemas on the way say, in order; empty when none says any. */
  stepsApplied: { fromVersion: number; toVersion: number; description: string }[];
}

export interface SchemaEnforcement {
  mode: "off" | "warn" | "enforce";
  trafficWindowHours: number;
  totalSchemas: number;
  schemas: {
    eventName: string;
    version: number;
    schemaHash: string;
    /** Whether there is data that it refuses. */
    asserts: boolean;
    /** Why it cannot be used; empty when it can. */
    compileError: string;
    /** Recent events that it would refuse now. */
    traffic: { version: number; schemaHash: string; count: number }[];
    trafficTruncated: boolean;
  }[];
}

export interface PushedSchemas {
  /** `order.placed/2` each. */
  registered: string[];
  unchanged: string[];
  /** Events of the registry whose rule tells no JSON Schema. */
  untold: string[];
}

/** JSON Schemas of events, which the server checks data by. */
export interface SchemaCalls {
  /** From now on the name has only the registered versions. The schema of a version never changes. */
  register(
    eventName: string,
    schema: JsonSchemaText,
    options?: { version?: number; description?: string },
  ): Promise<"registered" | "unchanged">;
  list(options?: {
    eventName?: string;
    limit?: number;
    offset?: number;
  }): Promise<{ schemas: SchemaInfo[]; totalCount: number }>;
  /** The latest version, when none is named. */
  get(eventName: string, version?: number): Promise<EventSchema>;
  delete(eventName: string, version: number): Promise<void>;
  /** Brings data up to a version (the latest, when none is named) by what the schemas say; stores nothing. */
  testUpcast(
    eventName: string,
    data: unknown,
    versions: { from: number; to?: number },
  ): Promise<UpcastResult>;
  /** How schemas are enforced, and what they would say of events of the last `hours` (24 by default). */
  check(options?: { eventName?: string; hours?: number }): Promise<SchemaEnforcement>;
  /** Registers what the rules of the client's `events` tell, in the version that each names. */
  push(): Promise<PushedSchemas>;
}
