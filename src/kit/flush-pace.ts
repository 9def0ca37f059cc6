/** How many recent flushes tell how many callers there are. */
const peaksKept = 8;
/** The rate of callers is measured over about this long. */
const rateMs = 100;
/** What the last flush counts for in the mean time of a flush. */
const lastShare = 1 / 8;
/** A flush that took longer met a lock or a pause of the machine, and foretells nothing. */
const tookMsMax = 20;
/** Up to this occupancy no flush waits; from `occupancyBusy` on a flush waits for its whole pace. */
const occupancyIdle = 0.5;
const occupancyBusy = 1;
/**
 * From this occupancy on flushes are large whatever is done. Heavy ones then wait for a half of the callers:
 * the other half is served meanwhile, and the store does not stand still between two flushes.
 */
const occupancyCrowded = 24;
const crowdShare = 0.5;

/**
 * When the next flush of a lane may begin. The lane's occupancy is the rate of its callers times the time of
 * a flush: the share of time the store would spend if each caller had its own flush. While it is low, waiting
 * saves nothing, and each flush begins at once. Above one, callers queue whatever is done, so they gather, at
 * most for the pace. The pace does not change the occupancy, so it cannot swing.
 */
export class FlushPace {
  #beganAt = Number.NEGATIVE_INFINITY;
  /** Callers of the last `rateMs`, the older ones counted for less; of batches their weight. */
  #callers = 0;
  #tookMs = 0;
  #size = 0;
  #isHeavy = false;
  /** How many callers were in each of the last flushes or waited for its end. */
  readonly #peaks: number[] = [];

  /** A flush of `size` callers begins at `now`; with much to write, they count for as many as its weight. */
  began(now: number, size: number, weight = size): void {
    this.#callers = this.#callers * Math.exp((this.#beganAt - now) / rateMs) + Math.max(size, weight);
    this.#beganAt = now;
    this.#size = size;
  }

  /** The last flush is over with `waiting` callers here. A heavy one takes the store longer than the node. */
  ended(now: number, waiting: number, isHeavy = false): void {
    this.#isHeavy = isHeavy;
    this.#peaks.push(this.#size + waiting);
    if (this.#peaks.length > peaksKept) this.#peaks.shift();
    const tookMs = Math.min(tookMsMax, now - this.#beganAt);
    this.#tookMs += (tookMs - this.#tookMs) * lastShare;
  }

  /**
   * How long the next flush still waits while `waiting` callers are here: until this share of as many as
   * there were at once is here, and at most until `paceMs` after the last flush began.
   */
  pauseMs(now: number, waiting: number, paceMs: number, share = 1): number {
    const occupancy = (this.#callers / rateMs) * this.#tookMs;
    const leftMs = this.#beganAt + paceMs * paceShare(occupancy) - now;
    const isHalfEnough = this.#isHeavy && occupancy >= occupancyCrowded;
    const enough = isHalfEnough ? Math.min(share, crowdShare) : share;
    if (!(leftMs > 0) || waiting >= Math.max(...this.#peaks) * enough) return 0;
    // A clock's time may swallow a part of a millisecond, and the lane would ask again without an end.
    return Math.ceil(leftMs);
  }
}

/** How much of its pace a flush waits for, from 0 to 1. */
function paceShare(occupancy: number): number {
  const above = (occupancy - occupancyIdle) / (occupancyBusy - occupancyIdle);
  return Math.min(1, Math.max(0, above));
}
