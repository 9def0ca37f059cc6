import { after } from "./retry.ts";

const everyMsMin = 200;

/**
 * When a worker says that it is alive. The interval is the configured one until a lease asks for a shorter one: three
 * heartbeats in a lease, so that one that is lost does not cost the worker its jobs.
 */
export class Heartbeats {
  readonly #beat: (everyMs: number) => Promise<void>;
  #everyMs: number;
  #dueAt = 0;
  #cancel: (() => void) | undefined;
  isStopped = false;
  #isGiven = false;

  /** `beat` sends one heartbeat and never rejects. */
  constructor(everyMs: number, beat: (everyMs: number) => Promise<void>) {
    this.#everyMs = everyMs;
    this.#beat = beat;
  }

  start(): void {
    this.#plan();
  }

  /** Leases last as long as they were asked for: `everyMs` is the longest time between two renewals of them. */
  renewEvery(everyMs: number): void {
    this.#isGiven = true;
    this.#shorten(everyMs);
  }

  /** The next one is sent now. */
  hurry(): void {
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
    await this.#beat(this.#everyMs);
    if (!this.isStopped) this.#plan();
  }
}
