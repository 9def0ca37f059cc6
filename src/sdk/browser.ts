/** The client alone, for pages: nothing of it needs more than a browser has. */

export { type ClientOptions, createClient } from "./client/client.ts";
export type * from "./client/client-sql.ts";
export type * from "./client/client-types.ts";
export type * from "./client/entity-types.ts";
export type * from "./client/kv-types.ts";
export type * from "./client/repair-types.ts";
export type * from "./client/tool-types.ts";
export type * from "./client/webhook-types.ts";
export type * from "./projections/projection-types.ts";
export { defineEvents, type EventRegistry, type EventRule, type EventRules } from "./steps/events.ts";
export type * from "./subscriptions/subscription-types.ts";
export { NonRetryableError, SvcError, WaitTimeoutError } from "./wire/errors.ts";
export type { JsonSchemaText, StandardSchema } from "./wire/json-schema.ts";
export { type FromJsonSchema, jsonSchema } from "./wire/json-schema.ts";
export type { ConnectionOptions, Transport } from "./wire/transport.ts";
export type * from "./wire/types.ts";
