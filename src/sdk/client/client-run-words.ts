import { readStream } from "../subscriptions/subscription-stream.ts";
import { SvcError } from "../wire/errors.ts";
import { dataFields } from "../wire/payload.ts";
import { type Message, readRun } from "../wire/read.ts";
import { once, pause, reconnectDelayMs, safe } from "../wire/retry.ts";
import type { Transport } from "../wire/transport.ts";
import type {
  OutputChunk,
  OutputOptions,
  RunOutput,
  RunSignal,
  RunSignals,
  RunWordCalls,
} from "./repair-types.ts";
import { runErasureCalls } from "./run-erasure.ts";

interface FrameMessage {
  kind?: "chunk" | "superseded" | "end" | "heartbeat";
  index?: string;
  attempt?: number;
  data?: unknown;
  superseded?: boolean;
  until?: string;
}

/** Chunks that may wait for who reads them, until no more are read from the server. */
const waitingMax = 1_000;

/** One connection: frames as they come, pulled by who reads; throws what ended it. */
async function* framesOf(
  transport: Transport,
  message: object,
  signal: AbortSignal,
): AsyncGenerator<FrameMessage> {
  const waiting: FrameMessage[] = [];
  let ended: { error?: unknown } | undefined;
  let tell = () => {};
  let took = () => {};
  const room = () =>
    waiting.length < waitingMax
      ? undefined
      : new Promise<void>((done) => {
          took = done;
        });
  const request = { method: "SvcService/WatchRunOutput", message, signal, room };
  const reading = readStream(transport, request, (frame) => {
    waiting.push(frame as FrameMessage);
    tell();
  });
  reading.then(
    () => {
      ended = {};
      tell();
    },
    (error: unknown) => {
      ended = { error };
      tell();
    },
  );
  for (;;) {
    const frame = waiting.shift();
    if (frame) {
      took();
      yield frame;
    } else if (ended) {
      if (ended.error !== undefined) throw ended.error;
      return;
    } else
      await new Promise<void>((done) => {
        tell = done;
        if (waiting.length > 0 || ended) done();
      });
  }
}

async function* readOutput(
  transport: Transport,
  runId: string,
  name: string,
  { from = 0, superseded = false, onSuperseded, signal }: OutputOptions,
): AsyncGenerator<OutputChunk, void, void> {
  let next = from;
  for (let failures = 0; ; ) {
    const stop = new AbortController();
    const cut = () => stop.abort();
    if (signal?.aborted) return;
    signal?.addEventListener("abort", cut, { once: true });
    try {
      const message = { runId, name, from: `${next}` };
      for await (const frame of framesOf(transport, message, stop.signal)) {
        failures = 0;
        // Zero is left out on the wire.
        const { kind, index = "0", attempt = 1, data = null, until = "0" } = frame;
        if (kind === "end") return;
        if (kind === "superseded") onSuperseded?.({ from: Number(index), until: Number(until) });
        if (kind !== "chunk") continue;
        next = Number(index) + 1;
        if (frame.superseded && !superseded) continue;
        yield { index: Number(index), attempt, data, ...(frame.superseded && { superseded: true }) };
      }
      throw new SvcError("unreachable", "the stream ended before the run did", { retryable: true });
    } catch (error) {
      if (signal?.aborted) return;
      if (!(error instanceof SvcError) || !(error.retryable || error.code === "aborted")) throw error;
      await pause(reconnectDelayMs(++failures, error), signal);
    } finally {
      stop.abort();
      signal?.removeEventListener("abort", cut);
    }
  }
}

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
