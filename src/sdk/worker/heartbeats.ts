import { after } from "../wire/retry.ts";

const everyMsMin = 200;

/**
 * When a worker says that it is alive. The interval is the configured one until a lease asks for a shorter
 * one: three heartbeats in a lease, so that one that is lost does not cost the worker its jobs.
 */
export class Heartbeats {
  readonly #beat: (everyMs: number) => Promise<boolean>;
  #everyMs: number;
  #dueAt = 0;
  #cancel: (() => void) | undefined;
  isStopped = false;
  #isGiven = false;
  #isHurried = false;

  /** `beat` sends one heartbeat, and answers whether it was taken; it never rejects. */
  constructor(everyMs: number, beat: (everyMs: number) => Promise<boolean>) {
    this.#everyMs = everyMs;
    this.#beat = beat;
  }

  start(): void {
    this.#plan();
  }

  /** Leases last as long as was asked: `everyMs` is the longest time between two renewals of them. */
  renewEvery(everyMs: number): void {
    this.#isGiven = true;
    this.#shorten(everyMs);
  }

  /** The next one is sent now, and again until one is taken. */
  hurry(): void {
    this.#isHurried = true;
    if (this.#cancel !== undefined) this.#plan(0);
  }

  /** Takes note of a job's lease, by the instant at which it ends (RFC 3339), unless the time is given. */
  mindLease(expiresAt: string | undefined): void {
    if (expiresAt === undefined || this.#isGiven) return;
    this.#shorten((Date.parse(expiresAt) - Date.now()) / 3);
  }

  #shorten(wantedMs: number): void {
    const everyMs = Math.max(everyMsMin, wantedMs);
    if (!(everyMs < this.#everyMs)) return;
    this.#everyMs = everyMs;
    if (this.#cancel !== undefined && this.#dueAt > Date.now() + everyMs) this.#plan();
  }

  stop(): void {
    this.isStopped = true;
    this.#cancel?.();
  }

  #plan(inMs = this.#everyMs): void {
    this.#cancel?.();
    this.#dueAt = Date.now() + inMs;
    this.#cancel = after(inMs, () => void this.#run());
  }

  async #run(): Promise<void> {
    if (await this.#beat(this.#everyMs)) this.#isHurried = false;
    if (!this.isStopped) this.#plan(this.#isHurried ? everyMsMin : this.#everyMs);
  }
}
