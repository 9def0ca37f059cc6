import type { OutputSource } from "../steps/step-host.ts";
import { SvcError } from "../wire/errors.ts";
import { jsonToSend } from "../wire/payload.ts";
import { after, delayAfter, mayRepeat, pause } from "../wire/retry.ts";
import type { Logger } from "../wire/types.ts";
import type { Assignment } from "../wire/wire.ts";

interface OutputSenderOptions {
  assignment: Pick<Assignment, "run_id" | "execution_seq" | "lease_token">;
  /** A unary RPC that may be repeated. */
  call: (method: string, message: unknown) => Promise<unknown>;
  log: Logger;
}

interface ChunkBatch extends OutputSource {
  name: string;
  /** How many its source wrote before. */
  first: number;
  /** JSON texts. */
  chunks: string[];
  characters: number;
  settle: { done: () => void; failed: (error: unknown) => void }[];
}

const gatherMs = 50;
/** Where many runs write at once, each gathers for longer: calls would take what the runs compute with. */
const gatherMsEach = 2;
const gatherMsMax = 200;
/** Senders in this process that gather now. */
let gathering = 0;
/** A server that restarts is back by then; the last report of the job waits for what is written. */
const triesMax = 10;
const delayMsMax = 2_000;
/** What was stored already is known by its place. */
async function patiently(work: () => Promise<unknown>): Promise<void> {
  for (let tries = 1; ; tries++) {
    try {
      await work();
      return;
    } catch (error) {
      if (tries >= triesMax || !mayRepeat(error, true)) throw error;
      await pause(delayAfter(tries, gatherMs, delayMsMax));
    }
  }
}

/** Well under the server's limits of a write. */
const chunksMax = 1_000;
const charactersMax = 80_000;

/** Chunks that one execution has written and the server does not have: sent one batch after the other. */
export class OutputSender {
  readonly #options: OutputSenderOptions;
  /** By output and source, how many it wrote. */
  readonly #counts = new Map<string, number>();
  #waiting: ChunkBatch[] = [];
  #cancel: (() => void) | undefined;
  #sending: Promise<void> = Promise.resolve();
  #refused: SvcError | undefined;

  constructor(options: OutputSenderOptions) {
    this.#options = options;
  }

  /** Resolves once the chunk is stored. */
  write(name: string, { stepId, entry }: OutputSource, chunk: unknown): Promise<void> {
    if (this.#refused) return heard(Promise.reject(this.#refused));
    const text = jsonToSend(chunk, `a chunk of output ${name}`) ?? "null";
    const key = `${entry} ${stepId}\n${name}`;
    const first = this.#counts.get(key) ?? 0;
    this.#counts.set(key, first + 1);
    const last = this.#waiting.at(-1);
    const fits =
      last?.name === name &&
      last.stepId === stepId &&
      last.entry === entry &&
      last.chunks.length < chunksMax &&
      last.characters + text.length <= charactersMax;
    const batch = fits ? last : { name, stepId, entry, first, chunks: [], characters: 0, settle: [] };
    if (!fits) this.#waiting.push(batch);
    batch.chunks.push(text);
    batch.characters += text.length;
    this.#cancel ??= this.#gather();
    return heard(new Promise<void>((done, failed) => batch.settle.push({ done, failed })));
  }

  #gather(): () => void {
    gathering++;
    const ms = Math.min(gatherMsMax, Math.max(gatherMs, gathering * gatherMsEach));
    const cancel = after(ms, () => void this.flush());
    return () => {
      gathering--;
      cancel();
    };
  }

  /** Resolves once all that was written is stored, or refused; never rejects. */
  flush(): Promise<void> {
    this.#cancel?.();
    this.#cancel = undefined;
    const batches = this.#waiting;
    this.#waiting = [];
    for (const batch of batches) this.#sending = this.#sending.then(() => this.#send(batch));
    return this.#sending;
  }

  async #send({ name, stepId, entry, first, chunks, settle }: ChunkBatch): Promise<void> {
    const { assignment, call, log } = this.#options;
    const { run_id: runId, execution_seq: executionSeq, lease_token: leaseToken } = assignment;
    try {
      if (this.#refused) throw this.#refused;
      const fence = { runId, executionSeq, leaseToken };
      const written = chunks.map((text) => JSON.parse(text) as unknown);
      const message = { ...fence, name, stepId, entry, first, chunks: written };
      await patiently(() => call("SvcService/WriteRunOutput", message));
      for (const { done } of settle) done();
    } catch (error) {
      for (const { failed } of settle) failed(error);
      if (this.#refused) return;
      // What follows would leave a gap. An output fails no run.
      this.#refused = error instanceof SvcError ? error : new SvcError("bad_answer", String(error));
      log.warn("outputs of the run are left out from here on", { runId, reason: this.#refused.message });
    }
  }
}

/** Who awaits it learns of its failure; nobody has to. */
function heard(stored: Promise<void>): Promise<void> {
  stored.catch(() => {});
  return stored;
}
