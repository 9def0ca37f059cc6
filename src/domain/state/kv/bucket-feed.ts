import type { Clock } from "../../../kit/clock.ts";
import { type Fault, missing } from "../../../kit/fault.ts";
import type { Log } from "../../../kit/log.ts";
import type { Store } from "../../../store/store.ts";
import { watchAheadBytesMax, watchAheadMax, watchSlice } from "./limits.ts";
import type { Bucket } from "./rows.ts";
import { bucketEnd, changesAfter, type ToldChange, withValues } from "./watch-rows.ts";

export type WatchedBucket = Pick<Bucket, "environmentId" | "id" | "name">;

/** Changes on their way to one reader who has read all before them. */
export class Tap {
  readonly #wants: (key: string) => boolean;
  #after: number;
  #waiting: ToldChange[] = [];
  #chars = 0;
  #fault: Fault | undefined;
  #isOver = false;
  #wake = () => {};
  /** More came than may wait: what is left out must be read from the store. */
  isCut = false;

  constructor(after: number, wants: (key: string) => boolean) {
    this.#after = after;
    this.#wants = wants;
  }

  offer(change: ToldChange): void {
    if (this.isCut || change.revision <= this.#after || !this.#wants(change.key)) return;
    this.#after = change.revision;
    this.#chars += change.value.length;
    const isFull = this.#chars > watchAheadBytesMax || this.#waiting.length >= watchAheadMax;
    if (isFull && this.#waiting.length > 0) this.isCut = true;
    else this.#waiting.push(change);
    this.#wake();
  }

  /** The reader leaves. */
  stop(): void {
    this.#isOver = true;
    this.#wake();
  }

  end(fault: Fault): void {
    this.#fault = fault;
    this.#wake();
  }

  /** What waits; once there is something, or nothing more will come. */
  async take(): Promise<readonly ToldChange[]> {
    if (this.#waiting.length === 0 && !this.isCut && !this.#fault && !this.#isOver)
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    this.#wake = () => {};
    const taken = this.#waiting;
    this.#waiting = [];
    this.#chars = 0;
    if (taken.length === 0 && this.#fault) throw this.#fault;
    return taken;
  }
}

/** Reads each change of one bucket once for all who watch it at this node. */
export class BucketFeed {
  readonly bucket: WatchedBucket;
  readonly #store: Store;
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #taps = new Set<Tap>();
  #isStale = false;
  #isReading = false;
  /** Every change up to this revision was offered to all taps. */
  at: number;
  /** All watchers, also those that have not caught up. */
  watchers = 0;

  constructor(deps: { store: Store; clock: Clock; log: Log }, bucket: WatchedBucket, at: number) {
    this.#store = deps.store;
    this.#clock = deps.clock;
    this.#log = deps.log;
    this.bucket = bucket;
    this.at = at;
  }

  get isTapped(): boolean {
    return this.#taps.size > 0;
  }

  /** Of a reader who has read up to `after`, which must not be before `at`. */
  tap(after: number, wants: (key: string) => boolean): Tap {
    if (!this.isTapped) this.at = after;
    const tap = new Tap(after, wants);
    this.#taps.add(tap);
    // What came between the reader's last read and this.
    if (this.#isStale) void this.#read();
    return tap;
  }

  untap(tap: Tap): void {
    this.#taps.delete(tap);
  }

  /** Something changed, or may have. */
  wake(): void {
    this.#isStale = true;
    void this.#read();
  }

  async #read(): Promise<void> {
    if (this.#isReading) return;
    this.#isReading = true;
    try {
      while (this.#isStale && this.isTapped) {
        this.#isStale = false;
        await this.#readOn();
      }
    } catch (error) {
      // The loop finds that the bucket lags behind its revision, and asks again.
      this.#log.debug("kv.watch_unread", { bucket: this.bucket.name, error });
    } finally {
      this.#isReading = false;
    }
  }

  async #readOn(): Promise<void> {
    const end = await bucketEnd(this.#store, this.bucket);
    if (!end) {
      for (const tap of [...this.#taps]) tap.end(missing("bucket", this.bucket.name));
      return;
    }
    while (this.at < end.revision) {
      const heads = await changesAfter(this.#store, this.bucket, {
        now: this.#clock.now(),
        after: this.at,
        key: undefined,
        limit: watchSlice,
      });
      for await (const changes of withValues(this.#store, this.bucket, heads))
        for (const change of changes) {
          for (const tap of this.#taps) tap.offer(change);
          // At once: a reader that joins before the next values are read must not count as one who has these.
          this.at = change.revision;
        }
      const last = heads.at(-1)?.revision ?? 0;
      this.at = heads.length < watchSlice ? Math.max(last, end.revision) : last;
    }
  }
}
