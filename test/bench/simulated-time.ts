interface Due {
  at: number;
  order: number;
  act: () => void;
}

/** What happens when, on a clock that jumps from one happening to the next. */
export class Timeline {
  now = 0;
  #order = 0;
  /** A heap: each is due no later than the two below it. */
  readonly #due: Due[] = [];

  after(ms: number, act: () => void): void {
    const heap = this.#due;
    const one = { at: this.now + ms, order: this.#order++, act };
    let place = heap.length;
    for (; place > 0; ) {
      const above = (place - 1) >> 1;
      if (!isBefore(one, heap[above]!)) break;
      heap[place] = heap[above]!;
      place = above;
    }
    heap[place] = one;
  }

  runUntil(end: number): void {
    for (let next = this.#due[0]; next && next.at <= end; next = this.#due[0]) {
      this.#takeFirst();
      this.now = next.at;
      next.act();
    }
    if (Number.isFinite(end)) this.now = end;
  }

  #takeFirst(): void {
    const heap = this.#due;
    const last = heap.pop()!;
    if (heap.length === 0) return;
    let place = 0;
    for (;;) {
      let below = 2 * place + 1;
      if (below >= heap.length) break;
      if (below + 1 < heap.length && isBefore(heap[below + 1]!, heap[below]!)) below++;
      if (!isBefore(heap[below]!, last)) break;
      heap[place] = heap[below]!;
      place = below;
    }
    heap[place] = last;
  }
}

/** What is due at once happens in the order in which it was planned. */
const isBefore = (a: Due, b: Due): boolean => a.at < b.at || (a.at === b.at && a.order < b.order);

/** Cores, threads or a lock: so many hold it at once, the others wait in their order. */
export class Pool {
  busyMs = 0;
  readonly size: number;
  readonly #time: Timeline;
  readonly #waiting: (() => void)[] = [];
  #first = 0;
  #held = 0;
  #heldMs = 0;
  #since = 0;

  constructor(time: Timeline, size: number) {
    this.#time = time;
    this.size = size;
  }

  take(act: () => void): void {
    if (this.#held >= this.size) {
      this.#waiting.push(act);
      return;
    }
    this.#note(1);
    act();
  }

  release(): void {
    this.#note(-1);
    const next = this.#waiting[this.#first];
    if (!next) return;
    this.#first++;
    if (this.#first === 1_024) {
      this.#waiting.splice(0, this.#first);
      this.#first = 0;
    }
    this.#note(1);
    next();
  }

  /** Works for so long, on a core of `beside` as well when it is given. */
  hold(ms: number, done: () => void, beside?: Pool): void {
    const work = () =>
      this.#time.after(ms, () => {
        this.busyMs += ms;
        beside?.release();
        this.release();
        done();
      });
    this.take(beside ? () => beside.take(work) : work);
  }

  /** How long it was held until now, of several at once the sum. */
  heldUntil(): number {
    this.#note(0);
    return this.#heldMs;
  }

  #note(change: number): void {
    this.#heldMs += this.#held * (this.#time.now - this.#since);
    this.#since = this.#time.now;
    this.#held += change;
  }
}

/** A disk that syncs once at a time, for all commits that wait when the sync begins. */
export class Disk {
  readonly #time: Timeline;
  readonly #syncMs: number;
  #waiting: (() => void)[] = [];
  #isSyncing = false;
  #busyMs = 0;

  constructor(time: Timeline, syncMs: number) {
    this.#time = time;
    this.#syncMs = syncMs;
  }

  sync(done: () => void): void {
    this.#waiting.push(done);
    this.#begin();
  }

  busyUntil(): number {
    return this.#busyMs;
  }

  #begin(): void {
    if (this.#isSyncing || this.#waiting.length === 0) return;
    const these = this.#waiting;
    this.#waiting = [];
    this.#isSyncing = true;
    this.#time.after(this.#syncMs, () => {
      this.#busyMs += this.#syncMs;
      this.#isSyncing = false;
      for (const done of these) done();
      this.#begin();
    });
  }
}
