/** What users of svc import. Runs on Bun and on Node 20 or newer, without dependencies. */

export * from "./browser.ts";
export { defineTools } from "./client/tools.ts";
export type { WebhookEvent, WebhookRequest, WebhookRule } from "./client/webhooks.ts";
export {
  type VerifiedWebhook,
  type VerifyWebhookOptions,
  verifyWebhook,
  WebhookVerificationError,
} from "./client/webhooks.ts";
export { createProjection } from "./projections/projection.ts";
export {
  createFunction,
  type FunctionOptions,
  type Handler,
  type HandlerContext,
} from "./steps/function.ts";
export type { StepRetry } from "./steps/step-retry.ts";
export { StepTimeoutError } from "./steps/step-work.ts";
export type * from "./steps/steps.ts";
export type { HandlerEvent, SvcFunction } from "./steps/svc-function.ts";
export type { TestCall, TestResult, TestStep, TestWait } from "./testing/test-plan.ts";
export { type FunctionTest, testFunction } from "./testing/testing.ts";
export {
  type EventToProject,
  type ProjectionTest,
  type ProjectionTestResult,
  testProjection,
} from "./testing/testing-projection.ts";
export type { TestAppend } from "./testing/testing-streams.ts";
export type { Duration } from "./wire/duration.ts";
export type * from "./wire/error-types.ts";
export { StepFailedError } from "./wire/errors.ts";
export type { Jsonify } from "./wire/jsonify.ts";
export { toNodeHandler } from "./wire/node.ts";
export type { HistoryEntry, PausedState, PreviewedStep, RunResult, Secret } from "./wire/read.ts";
export { type ServeHandler, type ServeOptions, serve } from "./worker/serve.ts";
export { type ServeToolsHandler, type ServeToolsOptions, serveTools } from "./worker/serve-tools.ts";
export { createWorker, type Worker, type WorkerOptions } from "./worker/worker.ts";
