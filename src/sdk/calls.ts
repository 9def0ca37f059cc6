import type { Transport } from "./transport.ts";

/** Unary RPCs that steps make for their run. They carry an idempotency key, so they may be repeated. */
export const callForRun =
  (transport: Transport) =>
  <Answer>(runId: string, method: string, body: unknown): Promise<Answer> =>
    transport.call<Answer>(
      { method: "POST", path: `/svc.v1.${method}`, body, headers: { "x-svc-run-id": runId } },
      { repeatable: true },
    );
