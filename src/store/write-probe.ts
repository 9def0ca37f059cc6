import type { Clock } from "../kit/clock.ts";
import { NotWritable, StoreError } from "./store.ts";

/** So long one commit stands for those that may follow it. */
const freshMs = 400;
/**
 * A commit without an answer for so many slices hangs: with its freshness and the pause of loop
 * `store.watch`, under two seconds. In slices, because after a pause of this process its timers come before
 * the answers that have arrived meanwhile.
 */
const hungSlices = 6;
const sliceMs = 210;
/** A commit that hangs is given up, since its connection might be what is dead, and another one is tried. */
const givenUpMs = 2_000;
/** A trouble of so long ago stands while the next try is under way. */
const troubleKeptMs = 2_000;

export interface WriteProbeOptions {
  clock: Clock;
  /** Resolves when something that was written is durable. Calls `onAsked` once the database has it. */
  commit(onAsked: () => void): Promise<void>;
  /** Ends a commit that hangs. */
  giveUp(): void;
  /** Takes some room and gives it back, at each look: it has to cost next to nothing. */
  tryRoom(): Promise<void>;
  /** The same as work takes it; asked once a write was refused. */
  takeRoom(): Promise<void>;
}

interface WriteLook {
  isAsked: boolean;
  isLate: boolean;
  outcome: NotWritable | "written" | undefined;
  done: Promise<void>;
  /** Resolves when it is done, or late. */
  settled: Promise<void>;
}

/** Finds out whether the database can be written: by a commit now and then, shared by all who ask. */
export class WriteProbe {
  readonly #options: WriteProbeOptions;
  #look: WriteLook | undefined;
  #freshUntil = Number.NEGATIVE_INFINITY;
  #isRoomDoubtful = false;
  #trouble: { why: NotWritable; at: number } | undefined;

  constructor(options: WriteProbeOptions) {
    this.#options = options;
  }

  /** Told of what a write met: it may have needed more than a look tries. */
  note(error: unknown): void {
    if (!(error instanceof StoreError) || error.trouble !== "full") return;
    this.#isRoomDoubtful = true;
    this.#freshUntil = Number.NEGATIVE_INFINITY;
  }

  /** Resolves when something was written a moment ago; throws NotWritable. */
  async ping(): Promise<void> {
    const { clock } = this.#options;
    if (clock.elapsed() < this.#freshUntil) return;
    this.#look ??= this.#begin();
    const look = this.#look;
    const before = this.#trouble;
    const stands = before !== undefined && clock.elapsed() - before.at < troubleKeptMs;
    await (stands ? this.#slice(look) : look.settled);
    if (look.outcome === "written") return;
    if (look.outcome) throw look.outcome;
    if (stands && !look.isLate) throw before.why;
    throw this.#noted(unanswered(look.isAsked));
  }

  async #slice({ done }: WriteLook): Promise<void> {
    const answered = new AbortController();
    await Promise.race([done, this.#options.clock.sleep(sliceMs, answered.signal)]);
    answered.abort();
  }

  async #settle(look: WriteLook): Promise<void> {
    for (let slices = 0; slices < hungSlices && look.outcome === undefined; slices++) await this.#slice(look);
    look.isLate = look.outcome === undefined;
  }

  #begin(): WriteLook {
    const { clock, giveUp } = this.#options;
    const none = Promise.resolve();
    const look: WriteLook = { isAsked: false, isLate: false, outcome: undefined, done: none, settled: none };
    const onTime = clock.after(givenUpMs, () => {
      look.isLate = true;
      giveUp();
    });
    look.done = this.#write(look)
      .then(
        () => {
          look.outcome = "written";
          this.#trouble = undefined;
          this.#freshUntil = clock.elapsed() + freshMs;
        },
        (error: unknown) => {
          look.outcome = this.#noted(look.isLate ? unanswered(look.isAsked, error) : notWritable(error));
        },
      )
      .finally(() => {
        onTime();
        this.#look = undefined;
      });
    look.settled = this.#settle(look);
    return look;
  }

  #noted(why: NotWritable): NotWritable {
    this.#trouble = { why, at: this.#options.clock.elapsed() };
    return why;
  }

  async #write(look: WriteLook): Promise<void> {
    const { commit, tryRoom, takeRoom } = this.#options;
    await commit(() => {
      look.isAsked = true;
    });
    // A full disk still takes small commits, so the probe has to take room to see that the disk is full.
    await tryRoom();
    if (!this.#isRoomDoubtful) return;
    await takeRoom();
    this.#isRoomDoubtful = false;
  }
}

const unanswered = (isAsked: boolean, cause?: unknown): NotWritable =>
  isAsked
    ? new NotWritable("the database does not finish commits", "a small one had no answer", cause)
    : new NotWritable("the database does not answer", "no connection in time", cause);

function notWritable(error: unknown): NotWritable {
  if (error instanceof NotWritable) return error;
  const detail = error instanceof StoreError ? error.detail : String((error as Error).message ?? error);
  return error instanceof StoreError && error.trouble === "full"
    ? new NotWritable("the database has no room left", detail, error)
    : new NotWritable("the database does not answer", detail, error);
}
