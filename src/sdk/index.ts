/** What users of svc import. Runs on Bun and on Node 20 or newer, without dependencies. */

export type * from "./causality-types.ts";
export { type ClientOptions, createClient } from "./client.ts";
export type * from "./client-sql.ts";
export type * from "./client-types.ts";
export type { Duration } from "./duration.ts";
export type * from "./entity-types.ts";
export type * from "./error-types.ts";
export { NonRetryableError, StepFailedError, SvcError, WaitTimeoutError } from "./errors.ts";
export {
  defineEvents,
  type EventRegistry,
  type EventRule,
  type EventRules,
} from "./events.ts";
export {
  createFunction,
  type FunctionOptions,
  type Handler,
  type HandlerContext,
} from "./function.ts";
export type * from "./group-types.ts";
export { type FromJsonSchema, jsonSchema } from "./json-schema.ts";
export type { Jsonify } from "./jsonify.ts";
export type * from "./kv-types.ts";
export { toNodeHandler } from "./node.ts";
export { createProjection } from "./projection.ts";
export type * from "./projection-call-types.ts";
export type * from "./projection-types.ts";
export type { HistoryEntry, PausedState, PreviewedStep, RunResult, Secret } from "./read.ts";
export type * from "./repair-types.ts";
export type * from "./schema-types.ts";
export { type ServeHandler, type ServeOptions, serve } from "./serve.ts";
export { type ServeToolsHandler, type ServeToolsOptions, serveTools } from "./serve-tools.ts";
export type { JsonSchemaText, StandardSchema } from "./standard-schema.ts";
export type { StepRetry } from "./step-retry.ts";
export { StepTimeoutError } from "./step-work.ts";
export type * from "./steps.ts";
export type * from "./subscription-types.ts";
export type { HandlerEvent, SvcFunction } from "./svc-function.ts";
export type { TestCall, TestResult, TestStep, TestWait } from "./test-plan.ts";
export { type FunctionTest, testFunction } from "./testing.ts";
export {
  type EventToProject,
  type ProjectionTest,
  type ProjectionTestResult,
  testProjection,
} from "./testing-projection.ts";
export type { TestAppend } from "./testing-streams.ts";
export type * from "./tool-types.ts";
export { defineTools } from "./tools.ts";
export type { ConnectionOptions, Transport } from "./transport.ts";
export type * from "./types.ts";
export {
  type VerifiedWebhook,
  type VerifyWebhookOptions,
  verifyWebhook,
  WebhookVerificationError,
} from "./verify-webhook.ts";
export type * from "./wait-types.ts";
export type * from "./webhook-types.ts";
export type { WebhookEvent, WebhookRequest, WebhookRule } from "./webhooks.ts";
export { createWorker, type Worker, type WorkerOptions } from "./worker.ts";
