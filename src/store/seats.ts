import type { Clock } from "../kit/clock.ts";
import { Fault } from "../kit/fault.ts";
import type { QueryAnswer, QueryAsk } from "./environment-databases.ts";

/** A connection or a process that works for one environment, one caller at a time. */
export interface Seat {
  usable(): boolean;
  end(): void;
}

export interface SeatsOptions<S extends Seat> {
  clock: Clock;
  /** Of this node. */
  sizeMax: number;
  /** Of one environment, so that others find one too. */
  ofOneMax: number;
  idleMs: number;
  /** Callers of one environment that wait; unbounded without. */
  waitingOfOneMax?: number;
  open: (environmentId: string) => Promise<S>;
}

interface Waiting {
  environmentId: string;
  /** A seat for quick work will do. */
  quick: boolean;
  go: (lane: Lane) => void;
}

/** Younger work finds a seat of its own: one for an environment, and so many for a node beside `sizeMax`. */
const quickMs = 250;
const quickSeatsMax = 2;

/** Seats in use, of all and by environment. */
class Lane {
  readonly #byEnvironment = new Map<string, number>();
  busy = 0;

  hasRoom(environmentId: string, most: number, ofOneMax: number): boolean {
    return this.busy < most && (this.#byEnvironment.get(environmentId) ?? 0) < ofOneMax;
  }

  count(environmentId: string, by: number): this {
    this.busy += by;
    const count = (this.#byEnvironment.get(environmentId) ?? 0) + by;
    if (count === 0) this.#byEnvironment.delete(environmentId);
    else this.#byEnvironment.set(environmentId, count);
    return this;
  }
}

interface Idle<S> {
  environmentId: string;
  seat: S;
  cancel: () => void;
}

/** Seats by environment: made when wanted, kept for a moment, never passed on to another environment. */
export class Seats<S extends Seat> {
  readonly #options: SeatsOptions<S>;
  readonly #idle = new Set<Idle<S>>();
  readonly #plain = new Lane();
  readonly #quick = new Lane();
  #waiting: Waiting[] = [];

  constructor(options: SeatsOptions<S>) {
    this.#options = options;
  }

  /** How many there are, in use or not. */
  size(): number {
    return this.#plain.busy + this.#quick.busy + this.#idle.size;
  }

  /** Callers that wait for one. */
  waiting(): number {
    return this.#waiting.length;
  }

  /** `work` has the seat for itself. Undefined when none became free in `waitMs`, or too many wait. */
  with<T>(environmentId: string, waitMs: number, work: (seat: S) => Promise<T>): Promise<T | undefined> {
    return this.#with({ environmentId, waitMs, quick: false }, work);
  }

  /** The same, also in a seat that is kept for quick work, which must leave it after `quickMs`. */
  withAny<T>(
    place: { environmentId: string; waitMs: number },
    work: (seat: S, isQuick: boolean) => Promise<T>,
  ): Promise<T | undefined> {
    return this.#with({ ...place, quick: true }, work);
  }

  async #with<T>(
    { environmentId, waitMs, quick }: { environmentId: string; waitMs: number; quick: boolean },
    work: (seat: S, isQuick: boolean) => Promise<T>,
  ): Promise<T | undefined> {
    const lane = await this.#enter(environmentId, waitMs, quick);
    if (!lane) return undefined;
    let seat: S | undefined;
    try {
      seat = this.#takeIdle(environmentId) ?? (await this.#options.open(environmentId));
      return await work(seat, lane === this.#quick);
    } finally {
      this.#leave(environmentId, seat, lane);
    }
  }

  close(): void {
    for (const one of [...this.#idle]) this.#end(one);
  }

  /** Ends what idles of one environment. */
  forget(environmentId: string): void {
    for (const one of [...this.#idle]) if (one.environmentId === environmentId) this.#end(one);
  }

  /** The lane with room; the one for quick work is never the first choice. */
  #laneFor({ environmentId, quick }: Pick<Waiting, "environmentId" | "quick">): Lane | undefined {
    const { sizeMax, ofOneMax } = this.#options;
    if (this.#plain.hasRoom(environmentId, sizeMax, ofOneMax)) return this.#plain;
    return quick && this.#quick.hasRoom(environmentId, quickSeatsMax, 1) ? this.#quick : undefined;
  }

  #enter(
    environmentId: string,
    waitMs: number,
    quick: boolean,
  ): Promise<Lane | undefined> | Lane | undefined {
    const lane = this.#laneFor({ environmentId, quick });
    if (lane) return lane.count(environmentId, 1);
    const before = this.#waiting.filter((one) => one.environmentId === environmentId).length;
    if (before >= (this.#options.waitingOfOneMax ?? Number.POSITIVE_INFINITY)) return undefined;
    return new Promise((resolve) => {
      const cancel = this.#options.clock.after(waitMs, () => {
        this.#waiting = this.#waiting.filter((one) => one !== waiting);
        resolve(undefined);
      });
      const waiting: Waiting = {
        ...{ environmentId, quick },
        go(found) {
          cancel();
          resolve(found);
        },
      };
      this.#waiting.push(waiting);
    });
  }

  #takeIdle(environmentId: string): S | undefined {
    for (const one of this.#idle) {
      if (one.environmentId !== environmentId) continue;
      one.cancel();
      this.#idle.delete(one);
      if (one.seat.usable()) return one.seat;
      one.seat.end();
    }
    // One of another environment makes room: it is ended, not handed over.
    const [oldest] = this.#idle;
    if (oldest && this.size() > this.#options.sizeMax) this.#end(oldest);
    return undefined;
  }

  #leave(environmentId: string, seat: S | undefined, lane: Lane): void {
    lane.count(environmentId, -1);
    if (seat?.usable()) {
      const one: Idle<S> = {
        ...{ environmentId, seat },
        cancel: this.#options.clock.after(this.#options.idleMs, () => this.#end(one)),
      };
      this.#idle.add(one);
    } else seat?.end();
    for (const next of this.#waiting) {
      const free = this.#laneFor(next);
      if (!free) continue;
      this.#waiting = this.#waiting.filter((one) => one !== next);
      next.go(free.count(next.environmentId, 1));
      return;
    }
  }

  #end(one: Idle<S>): void {
    one.cancel();
    this.#idle.delete(one);
    one.seat.end();
  }
}

interface QuerySeat extends Seat {
  query(ask: QueryAsk): Promise<QueryAnswer>;
}

/**
 * Runs a query, also in the seat that is kept for quick ones: what is not over there after `quickMs` is left,
 * and begins again in one of the others. Undefined when none became free.
 */
export async function quickFirst<S extends QuerySeat>(
  seats: Seats<S>,
  environmentId: string,
  ask: QueryAsk,
): Promise<QueryAnswer | undefined> {
  const { timeoutMs } = ask;
  const place = { environmentId, waitMs: timeoutMs };
  const answer = await seats.withAny(place, async (seat, isQuick) => {
    if (!isQuick || timeoutMs <= quickMs) return seat.query(ask);
    return seat.query({ ...ask, timeoutMs: quickMs }).catch((error) => {
      if (error instanceof Fault && error.kind === "deadline_exceeded") return "late" as const;
      throw error;
    });
  });
  return answer === "late" ? seats.with(environmentId, timeoutMs, (seat) => seat.query(ask)) : answer;
}
