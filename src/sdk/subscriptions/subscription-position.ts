import type { Place, SubscribeOptions } from "./subscription-types.ts";
import { type Ask, digits } from "./subscription-ways.ts";

/** The history of a single run is kept, so that a pattern about one run can be followed as a log is. */
const isOfOneRun = (pattern: string): boolean => /^system\.run\.[^.*>]+\./.test(pattern);

const hasLog = (pattern: string): boolean => !pattern.startsWith("system.") || isOfOneRun(pattern);

function placeOf(after: NonNullable<SubscribeOptions["after"]>): { sequence: bigint; epoch?: bigint } {
  const { sequence, epoch } = typeof after === "object" ? after : { sequence: after, epoch: undefined };
  const read = typeof sequence === "bigint" ? sequence : digits(sequence);
  const log = digits(epoch);
  if (read === undefined || read < 0n || (epoch !== undefined && log === undefined))
    throw new TypeError("after: must be a place of a subscription, or a sequence");
  return { sequence: read, ...(log !== undefined && { epoch: log }) };
}

/** How far a subscription has come in the log of its pattern, and what to ask the server for from there. */
export class SubscriptionPosition {
  /** False for frames that are not stored: there is no place to continue from. */
  readonly isLogged: boolean;
  readonly #pattern: string;
  readonly #options: SubscribeOptions;
  readonly #isOfOneRun: boolean;
  /** Everything up to here has arrived. */
  #cursor: bigint | undefined;
  /** The delivery that arrived last; undefined once everything was taken. */
  #newest: bigint | undefined;
  /** Everything up to here was taken by the reader. */
  #taken: bigint | undefined;
  #epoch: bigint | undefined;
  #wasConfirmed = false;

  /** Throws TypeError when `after` is no place, or comes together with `replay`. */
  constructor(pattern: string, options: SubscribeOptions) {
    const { after, replay } = options;
    if (after !== undefined && replay) throw new TypeError("after and replay: choose one");
    const begin = after === undefined ? undefined : placeOf(after);
    this.isLogged = hasLog(pattern);
    this.#pattern = pattern;
    this.#options = options;
    this.#isOfOneRun = isOfOneRun(pattern);
    this.#cursor = begin?.sequence;
    this.#taken = begin?.sequence;
    this.#epoch = begin?.epoch;
  }

  get place(): Place | undefined {
    if (this.#taken === undefined) return undefined;
    return { sequence: `${this.#taken}`, ...(this.#epoch !== undefined && { epoch: `${this.#epoch}` }) };
  }

  ask(): Ask {
    const { filter, topicOnly, replay } = this.#options;
    const isRunFromStart = this.#isOfOneRun && this.#wasConfirmed && !replay;
    const from = this.#cursor ?? (isRunFromStart ? 0n : undefined);
    return {
      pattern: this.#pattern,
      ...(filter !== undefined && { filter }),
      ...(topicOnly && { topicOnly: true }),
      ...(this.isLogged && from !== undefined
        ? { startAfter: from, ...(this.#epoch !== undefined && { epoch: this.#epoch }) }
        : replay && { replay }),
    };
  }

  /** The server has confirmed the subscription. */
  confirmed(start: { sequence?: bigint; epoch?: bigint }): void {
    this.#wasConfirmed = true;
    if (!this.isLogged || this.#isOfOneRun) return;
    // With a replay the past is still to come: until its first delivery it would be asked for again.
    if (!this.#options.replay) this.#cursor ??= start.sequence;
    this.#epoch ??= start.epoch;
    this.#taken ??= this.#cursor;
  }

  /** False when this delivery has arrived before: one under way as a connection broke may come again. */
  arrived(sequence: bigint): boolean {
    if (this.#cursor !== undefined && sequence <= this.#cursor) return false;
    this.#cursor = sequence;
    this.#newest = sequence;
    return true;
  }

  /** All that matches has arrived up to here. */
  passed(sequence: bigint): void {
    if (!this.isLogged || (this.#cursor !== undefined && sequence <= this.#cursor)) return;
    this.#cursor = sequence;
    if (this.#newest === undefined) this.#taken = sequence;
  }

  taken(sequence: bigint): void {
    this.#taken = sequence;
    if (sequence === this.#newest) this.#newest = undefined;
  }

  /** Restarts, with the oldest delivery that is kept or with the next one. */
  beginAnew(at: "earliest" | "latest"): void {
    this.#cursor = at === "earliest" ? 0n : undefined;
    this.#epoch = undefined;
    this.#newest = undefined;
    this.#taken = undefined;
  }
}
