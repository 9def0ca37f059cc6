/** What users of svc import. Runs on Bun and on Node 20 or newer, without dependencies. */
export {
  type Client,
  createClient,
  type EventPage,
  type EventToEmit,
  type ListEventsOptions,
  type ListRunsOptions,
} from "./client.ts";
export type { Duration } from "./duration.ts";
export { NonRetryableError, SvcError } from "./errors.ts";
export {
  defineEvents,
  type EventRegistry,
  type EventRule,
  type EventRules,
  type StandardSchema,
} from "./events.ts";
export {
  createFunction,
  type FunctionOptions,
  type Handler,
  type HandlerContext,
  type HandlerEvent,
  type SvcFunction,
} from "./function.ts";
export { StepTimeoutError } from "./step.ts";
export type * from "./steps.ts";
export {
  type FunctionTest,
  type TestCall,
  type TestResult,
  type TestStep,
  type TestWait,
  testFunction,
} from "./testing.ts";
export type { ConnectionOptions, Transport } from "./transport.ts";
export type * from "./types.ts";
export { createWorker, type Worker, type WorkerOptions } from "./worker.ts";
