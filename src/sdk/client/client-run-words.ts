import { dataFields } from "../wire/payload.ts";
import { type Message, readRun } from "../wire/read.ts";
import { once, safe } from "../wire/retry.ts";
import type { Transport } from "../wire/transport.ts";
import { readOutput } from "./read-output.ts";
import { runErasureCalls } from "./run-erasure.ts";
import type { RunOutput, RunSignal, RunSignals, RunWordCalls } from "./run-word-types.ts";

export function runWordCalls(transport: Transport): RunWordCalls {
  const rpc = <Answer>(method: string, message: unknown) =>
    transport.rpc<Answer>(`SvcService/${method}`, message, safe);

  return {
    ...runErasureCalls(transport),

    async signal(runId, name, data, { idempotencyKey = newKey() } = {}) {
      // By its key the server tells a second try from a second signal.
      const message = { runId, name, ...dataFields(data), idempotencyKey };
      return (await rpc<{ state?: "taken" | "kept" }>("SignalRun", message)).state ?? "kept";
    },

    async signals(runId, { limit, before } = {}) {
      const answer = await rpc<Partial<RunSignals>>("ListRunSignals", { runId, limit, before });
      const { signals = [], kept = 0, hasMore = false } = answer;
      return { signals: signals.map(readSignal), kept, hasMore };
    },

    output: (runId, name, options = {}) => readOutput(transport, runId, name, options) as never,

    async move(runId, { deployment } = {}) {
      return readRun(await transport.rpc<Message>("SvcService/MoveRun", { runId, deployment }, once));
    },

    async outputs(runId) {
      const { outputs = [] } = await rpc<{ outputs?: Partial<RunOutput>[] }>("ListRunOutputs", { runId });
      return outputs.map(({ name = "", chunks = 0, bytes = 0, tail = "" }) => ({
        ...{ name, tail, chunks: Number(chunks), bytes: Number(bytes) },
      }));
    },
  };
}

/** 64-bit numbers are texts on the wire. */
const readSignal = (signal: RunSignal): RunSignal => ({ ...signal, number: Number(signal.number) });

/** Pages that are not served over TLS have no `randomUUID`. */
const newKey = (): string =>
  Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join(
    "",
  );
