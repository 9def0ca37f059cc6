import type { Clock } from "../kit/clock.ts";
import { NotWritable, StoreError } from "./store.ts";

/** So long one commit stands for those that may follow it. */
const freshMs = 400;
/** A commit without an answer for so long hangs: with its freshness and the pause of loop `store.watch`, under two seconds. */
const hungMs = 1_250;
/** After a pause of this process its timers come before the answers that have arrived meanwhile. */
const turnMs = 50;
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
  /** Takes some room and gives it back. */
  takeRoom(): Promise<void>;
}

interface WriteLook {
  startedAt: number;
  isAsked: boolean;
  outcome: NotWritable | "written" | undefined;
  done: Promise<void>;
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

  /** Told of what a write met: small commits go on where there is no room for an event. */
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
    const leftMs = hungMs - (clock.elapsed() - look.startedAt);
    if (leftMs > 0 && !(before && clock.elapsed() - before.at < troubleKeptMs))
      await this.#within(look, leftMs);
    if (look.outcome === undefined) await this.#within(look, turnMs);
    if (look.outcome === "written") return;
    if (look.outcome) throw look.outcome;
    if (before && leftMs > 0) throw before.why;
    throw this.#noted(unanswered(look.isAsked));
  }

  async #within(look: WriteLook, ms: number): Promise<void> {
    const answered = new AbortController();
    await Promise.race([look.done, this.#options.clock.sleep(ms, answered.signal)]);
    answered.abort();
  }

  #begin(): WriteLook {
    const { clock } = this.#options;
    const look: WriteLook = {
      startedAt: clock.elapsed(),
      isAsked: false,
      outcome: undefined,
      done: Promise.resolve(),
    };
    const giveUp = clock.after(givenUpMs, () => this.#options.giveUp());
    look.done = this.#write(look).then(
      () => {
        look.outcome = "written";
        this.#trouble = undefined;
        this.#freshUntil = clock.elapsed() + freshMs;
        this.#end(look, giveUp);
      },
      (error: unknown) => {
        const isLate = clock.elapsed() - look.startedAt >= hungMs;
        look.outcome = this.#noted(isLate ? unanswered(look.isAsked, error) : notWritable(error));
        this.#end(look, giveUp);
      },
    );
    return look;
  }

  #noted(why: NotWritable): NotWritable {
    this.#trouble = { why, at: this.#options.clock.elapsed() };
    return why;
  }

  #end(look: WriteLook, giveUp: () => void): void {
    giveUp();
    if (this.#look === look) this.#look = undefined;
  }

  async #write(look: WriteLook): Promise<void> {
    const { commit, takeRoom } = this.#options;
    await commit(() => {
      look.isAsked = true;
    });
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
