import { afterTurn, timerMsMax } from "../wire/retry.ts";
import type { AskedWait, Yield } from "../wire/wire.ts";
import type { Scope } from "./scope.ts";

/** Work of a step that computes. */
export interface Computing {
  /** It has a compensation: the end of the handler does not cut it. */
  readonly isUndone: boolean;
  /** Nothing else computes, is waited for or is to be handed over while it runs. */
  isAlone: boolean;
  /** The handler ended meanwhile: what it gives counts nowhere. */
  isCut: boolean;
}

/** What the handler waits for, in the order of its calls; no yield if an undone run got no further. */
export interface StandingWait {
  scope: Scope;
  yielded: AskedWait | undefined;
  /** For a time: its end by this process's clock, and what then continues if work still runs here. */
  time?: { endsAtMs: number; goOn: () => void };
}

/** A promise that never settles, new for each call: a shared one would keep all its waiters in memory. */
export const open = () => new Promise<never>(() => {});

/**
 * How an execution continues. Results are handed to the handler one at a time, in the order in which they
 * were stored, the next one when the handler rests: so a race has the same winner each time. It is over when
 * something is waited for, nothing computes, every result is handed over and the handler rests.
 */
export class Course {
  readonly #computing = new Set<Computing>();
  readonly #open: StandingWait[] = [];
  readonly #results: { place: number; hand: () => void }[] = [];
  readonly #watchers: { check: () => boolean; done: () => void }[] = [];
  /** Something was handed over since the handler rested. */
  #isMoving = false;
  /** Calls, beginnings and ends of work. */
  #moves = 0;
  #isTurning = false;
  #isHalted = false;
  #isOver = false;
  /** Something was asked for beside something else. */
  wasParallel = false;
  /** The last step that others finished and whose result was handed over. */
  lastMet: string | undefined;
  #isCut = false;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #finish: () => void = () => {};
  readonly over = new Promise<void>((done) => {
    this.#finish = done;
  });

  get waits(): readonly StandingWait[] {
    return this.#open;
  }

  moved(): void {
    this.#moves++;
    this.#look();
    this.#watchTimes();
  }

  begin(isUndone: boolean): Computing {
    const isAlone = this.#computing.size + this.#results.length + this.#open.length === 0;
    this.#joined();
    const work = { isUndone, isAlone, isCut: false };
    this.#computing.add(work);
    this.#moves++;
    return work;
  }

  /** What computes has something beside it. */
  #joined(): void {
    if (this.#computing.size + this.#results.length + this.#open.length > 0) this.wasParallel = true;
    for (const one of this.#computing) one.isAlone = false;
  }

  end(work: Computing): void {
    this.#computing.delete(work);
    this.moved();
  }

  /** Work that was left continues. */
  resume(work: Computing): void {
    this.#computing.add(work);
    this.moved();
  }

  wait(scope: Scope, yielded: Yield | undefined): Promise<never> {
    this.#joined();
    this.#open.push({ scope, yielded });
    this.moved();
    return open();
  }

  /** Resolves when the time is over while work runs here: otherwise the server hands the run out again. */
  waitUntil(scope: Scope, yielded: Yield, ms: number): Promise<void> {
    return new Promise((goOn) => {
      this.#joined();
      this.#open.push({ scope, yielded, time: { endsAtMs: performance.now() + ms, goOn } });
      this.moved();
    });
  }

  isWaiting(branch: Scope): boolean {
    return this.#open.some(({ scope }) => {
      for (let at: Scope | undefined = scope; at; at = at.parent) if (at === branch) return true;
      return false;
    });
  }

  /** Of a result that is stored already: others may be asked for that were stored before. */
  giveStored(place: number, hand: () => void): void {
    this.#joined();
    this.#results.push({ place, hand });
    this.moved();
  }

  /** For finished work. If nothing ran beside it, nothing else can win: sequential steps cost no turn. */
  give({ isAlone }: Computing, hand: () => void): void {
    if (isAlone || (!this.#isMoving && this.#results.length === 0)) this.#hand(hand);
    else this.giveStored(Number.POSITIVE_INFINITY, hand);
  }

  /** Nothing continues from here: the execution is over when it rests, although it waits for nothing. */
  halt(): void {
    this.#isHalted = true;
    this.moved();
  }

  /** Resolves when the execution rests, and the check holds. */
  whenResting(check: () => boolean = () => true): Promise<void> {
    return new Promise((done) => {
      this.#watchers.push({ check, done });
      this.moved();
    });
  }

  /** The handler has ended. Answers whether there is still work to be waited for. */
  cut(): boolean {
    for (const work of this.#computing) {
      if (work.isUndone) continue;
      work.isCut = true;
      this.#computing.delete(work);
    }
    this.#isCut = true;
    this.#watchTimes();
    return this.#computing.size > 0;
  }

  /** What is undone goes its own course. */
  reopen(): void {
    this.#open.length = 0;
    this.#results.length = 0;
    this.#isHalted = false;
    this.#isOver = false;
    this.#isCut = false;
  }

  /** While something computes, times are over here. */
  #watchTimes(): void {
    if (this.#timer === undefined && this.#open.length === 0) return;
    clearTimeout(this.#timer);
    this.#timer = undefined;
    if (this.#computing.size === 0 || this.#isCut) return;
    const ends = this.#open.flatMap(({ time }) => time?.endsAtMs ?? []);
    if (ends.length === 0) return;
    const inMs = Math.min(...ends) - performance.now();
    this.#timer = setTimeout(() => this.#endTimes(), Math.min(Math.max(inMs, 0), timerMsMax));
  }

  #endTimes(): void {
    const due = this.#open.filter(({ time }) => time && time.endsAtMs <= performance.now());
    for (const one of due) {
      this.#open.splice(this.#open.indexOf(one), 1);
      one.time?.goOn();
    }
    this.moved();
  }

  #hand(hand: () => void): void {
    this.#isMoving = true;
    hand();
    this.moved();
  }

  #look(): void {
    const { length: waiting } = this.#open;
    const isIdle = this.#watchers.length === 0 && waiting === 0 && !this.#isHalted;
    if (this.#isTurning || this.#isOver || (isIdle && !this.#isMoving && this.#results.length === 0)) return;
    this.#isTurning = true;
    const moves = this.#moves;
    afterTurn(() => {
      this.#isTurning = false;
      if (this.#moves === moves) this.#rest();
      else this.#look();
    });
  }

  #rest(): void {
    if (this.#isOver) return;
    this.#isMoving = false;
    const next = this.#results.reduce<number>(
      (least, { place }, at, all) => (least < 0 || place < all[least]!.place ? at : least),
      -1,
    );
    if (next >= 0) {
      this.#hand(this.#results.splice(next, 1)[0]!.hand);
      return;
    }
    if (this.#computing.size > 0) return;
    const due = this.#watchers.filter(({ check }) => check());
    for (const one of due) this.#watchers.splice(this.#watchers.indexOf(one), 1);
    if (due.length > 0) {
      for (const { done } of due) done();
      this.moved();
    } else if (this.#open.length > 0 || this.#isHalted) {
      this.#isOver = true;
      this.#finish();
    }
  }
}
