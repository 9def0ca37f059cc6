/** The client alone, for pages: nothing of it needs more than a browser has. */

export type * from "./causality-types.ts";
export { type ClientOptions, createClient } from "./client.ts";
export type * from "./client-sql.ts";
export type * from "./client-types.ts";
export type * from "./entity-types.ts";
export { NonRetryableError, SvcError, WaitTimeoutError } from "./errors.ts";
export { defineEvents, type EventRegistry, type EventRule, type EventRules } from "./events.ts";
export type * from "./group-types.ts";
export { type FromJsonSchema, jsonSchema } from "./json-schema.ts";
export type * from "./kv-types.ts";
export type * from "./projection-call-types.ts";
export type * from "./projection-types.ts";
export type * from "./repair-types.ts";
export type * from "./schema-types.ts";
export type { JsonSchemaText, StandardSchema } from "./standard-schema.ts";
export type * from "./subscription-types.ts";
export type * from "./tool-types.ts";
export type { ConnectionOptions, Transport } from "./transport.ts";
export type * from "./types.ts";
export type * from "./webhook-types.ts";
