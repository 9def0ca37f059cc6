import { safe } from "./retry.ts";
import type { RpcOptions, Transport } from "./transport.ts";

/** How a step calls. */
export type StepCallOptions = Omit<RpcOptions, "runId">;

/** Unary RPCs that steps make for their run. Unless a step says otherwise they carry an idempotency key. */
export const callForRun =
  (transport: Transport) =>
  <Answer>(runId: string, method: string, body: unknown, options: StepCallOptions = safe): Promise<Answer> =>
    transport.rpc<Answer>(method, body, { ...options, runId });
