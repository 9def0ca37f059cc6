import { breather } from "../../../kit/breather.ts";
import type { CelProgram } from "../../../kit/cel/cel.ts";
import type { Clock } from "../../../kit/clock.ts";
import { ReadAheadSize } from "../../../kit/slice-size.ts";
import type { Delivery, Source, SourceEntry } from "../pubsub/delivery.ts";
import { charsOf, type Pattern, parsePattern, readFilter, wantedOf } from "../pubsub/rules.ts";
import { groupAheadMax, groupReadMs } from "./limits.ts";
import type { GroupRow } from "./rows.ts";

/** Characters of payloads that a group holds ahead at one node; an event may be as large as a request. */
const aheadCharsMax = 4 * 1024 * 1024;
const sliceFirst = 8;

/** An entry of the log that the group reads and that no claim has passed yet. */
export interface Candidate {
  position: number;
  delivery: Delivery;
}

export interface LookAheadDeps {
  clock: Clock;
  source: Pick<Source, "between" | "at">;
}

/**
 * What the group's log holds after the group's position, filtered before any claim so that no filter runs
 * under a lock. One instance is for one version of the group's settings: a change stops it, and the group
 * reader makes another.
 */
export class LookAhead {
  readonly #deps: LookAheadDeps;
  readonly #environmentId: string;
  readonly #wanted: { pattern: Pattern; filter: CelProgram | undefined };
  #found: Candidate[] = [];
  readonly #slices = new ReadAheadSize(sliceFirst);
  /** Of the payloads in `#found`. */
  #chars = 0;
  #reached: number;
  #isStopped = false;

  constructor(deps: LookAheadDeps, { environment_id, pattern, filter_expr, position }: GroupRow) {
    this.#deps = deps;
    this.#environmentId = environment_id;
    this.#wanted = { pattern: parsePattern(pattern), filter: readFilter(filter_expr ?? undefined) };
    this.#reached = position;
  }

  /** Candidates in order of position. */
  get found(): readonly Candidate[] {
    return this.#found;
  }

  /** Every entry up to here was looked at. */
  get reached(): number {
    return this.#reached;
  }

  /**
   * Takes entries that the feed handed over, when they follow what was looked at already. A filter that takes
   * longer than one turn of the event loop stops early: `readTo` reads the rest from the store.
   */
  takeFromFeed(entries: readonly SourceEntry[], before: number): void {
    if (this.#reached !== before) return;
    const breathe = breather(this.#deps.clock, this.#environmentId);
    for (const entry of entries) {
      if (this.#found.length >= groupAheadMax || this.#chars >= aheadCharsMax) return;
      if (this.#wanted.filter && breathe()) return;
      this.#keep(entry);
    }
    this.#reached = entries.at(-1)!.position;
  }

  /**
   * Reads the log until it has a candidate, or is at the feed's end as that moves, or for a while, so that a
   * claim stores how far it came and hands out what is due again. Otherwise the last member's leaving loses
   * what was read, and a group with short stays never passes a long stretch without a candidate.
   */
  async readTo(end: () => number): Promise<void> {
    const { clock } = this.#deps;
    const until = clock.elapsed() + groupReadMs;
    while (this.#found.length === 0 && this.#reached < end()) {
      const last = end();
      const range = { after: this.#reached, last };
      const { limit } = this.#slices;
      const entries = await this.#deps.source.between(this.#environmentId, range, limit);
      this.#slices.note(entries.length, charsOf(entries));
      const breathe = breather(clock, this.#environmentId);
      for (const entry of entries) {
        if (this.#wanted.filter) await breathe();
        if (this.#isStopped) return;
        this.#keep(entry);
      }
      if (this.#isStopped) return;
      const reached = entries.length < limit ? last : entries.at(-1)!.position;
      this.#reached = Math.max(this.#reached, reached);
      if (clock.elapsed() >= until) return;
    }
  }

  /** The payloads at these positions, whatever the filter says. One that has expired is missing. */
  async payloadsAt(positions: readonly number[]): Promise<Candidate[]> {
    const unfiltered = { ...this.#wanted, filter: undefined };
    const entries = await this.#deps.source.at(this.#environmentId, positions);
    return entries.flatMap((entry) => {
      const [delivery] = wantedOf(unfiltered, entry);
      return delivery ? { position: entry.position, delivery } : [];
    });
  }

  /** Drops the candidates up to the group's position, and reads on after it: no claim takes those entries. */
  passTo(position: number): void {
    this.#reached = Math.max(this.#reached, position);
    this.#found = this.#found.filter((one) => one.position > position);
    this.#chars = 0;
    for (const { delivery } of this.#found) this.#chars += delivery.data.length;
  }

  /** The settings have changed, or the group reader has closed: what is being read is of no use. */
  stop(): void {
    this.#isStopped = true;
  }

  #keep(entry: SourceEntry): void {
    const [delivery] = wantedOf(this.#wanted, entry);
    if (delivery) {
      this.#found.push({ position: entry.position, delivery });
      this.#chars += delivery.data.length;
    }
    this.#reached = entry.position;
  }
}
