import { safe } from "./retry.ts";
import type { RpcOptions, Transport } from "./transport.ts";

/** The run that calls, and where its trace stands. */
export type CallingRun = Required<Pick<RpcOptions, "runId">> & Pick<RpcOptions, "traceparent">;

/** How a step calls. */
export type StepCallOptions = Omit<RpcOptions, keyof CallingRun>;

/** Unary RPCs that steps make for their run. Unless a step says otherwise they carry an idempotency key. */
export const callForRun =
  (transport: Transport) =>
  <Answer>(
    run: CallingRun,
    method: string,
    body: unknown,
    options: StepCallOptions = safe,
  ): Promise<Answer> =>
    transport.rpc<Answer>(method, body, { ...options, ...run });
