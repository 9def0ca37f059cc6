import type { Clock } from "../kit/clock.ts";

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
  open: (environmentId: string) => Promise<S>;
}

interface Waiting {
  environmentId: string;
  go: () => void;
}

interface Idle<S> {
  environmentId: string;
  seat: S;
  cancel: () => void;
}

/** Seats by environment: made when wanted, kept for a moment, never handed from one environment to another. */
export class Seats<S extends Seat> {
  readonly #options: SeatsOptions<S>;
  readonly #idle = new Set<Idle<S>>();
  readonly #busy = new Map<string, number>();
  #waiting: Waiting[] = [];
  #busyCount = 0;

  constructor(options: SeatsOptions<S>) {
    this.#options = options;
  }

  /** How many there are, in use or not. */
  size(): number {
    return this.#busyCount + this.#idle.size;
  }

  /** Callers that wait for one. */
  waiting(): number {
    return this.#waiting.length;
  }

  /** `work` has the seat for itself. Undefined when none became free in `waitMs`. */
  async with<T>(
    environmentId: string,
    waitMs: number,
    work: (seat: S) => Promise<T>,
  ): Promise<T | undefined> {
    if (!(await this.#enter(environmentId, waitMs))) return undefined;
    let seat: S | undefined;
    try {
      seat = this.#takeIdle(environmentId) ?? (await this.#options.open(environmentId));
      return await work(seat);
    } finally {
      this.#leave(environmentId, seat);
    }
  }

  close(): void {
    for (const one of [...this.#idle]) this.#end(one);
  }

  /** Ends what idles of one environment. */
  forget(environmentId: string): void {
    for (const one of [...this.#idle]) if (one.environmentId === environmentId) this.#end(one);
  }

  #hasRoom(environmentId: string): boolean {
    const { sizeMax, ofOneMax } = this.#options;
    return this.#busyCount < sizeMax && (this.#busy.get(environmentId) ?? 0) < ofOneMax;
  }

  async #enter(environmentId: string, waitMs: number): Promise<boolean> {
    if (!this.#hasRoom(environmentId)) {
      const isIn = await new Promise<boolean>((resolve) => {
        const cancel = this.#options.clock.after(waitMs, () => {
          this.#waiting = this.#waiting.filter((one) => one !== waiting);
          resolve(false);
        });
        const waiting = {
          environmentId,
          go() {
            cancel();
            resolve(true);
          },
        };
        this.#waiting.push(waiting);
      });
      return isIn;
    }
    this.#count(environmentId, 1);
    return true;
  }

  #count(environmentId: string, by: number): void {
    this.#busyCount += by;
    const count = (this.#busy.get(environmentId) ?? 0) + by;
    if (count === 0) this.#busy.delete(environmentId);
    else this.#busy.set(environmentId, count);
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
    if (oldest && this.#busyCount + this.#idle.size > this.#options.sizeMax) this.#end(oldest);
    return undefined;
  }

  #leave(environmentId: string, seat: S | undefined): void {
    this.#count(environmentId, -1);
    if (seat?.usable()) {
      const one: Idle<S> = {
        ...{ environmentId, seat },
        cancel: this.#options.clock.after(this.#options.idleMs, () => this.#end(one)),
      };
      this.#idle.add(one);
    } else seat?.end();
    const next = this.#waiting.find((one) => this.#hasRoom(one.environmentId));
    if (!next) return;
    this.#waiting = this.#waiting.filter((one) => one !== next);
    this.#count(next.environmentId, 1);
    next.go();
  }

  #end(one: Idle<S>): void {
    one.cancel();
    this.#idle.delete(one);
    one.seat.end();
  }
}
