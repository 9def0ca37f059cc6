const everyMsMin = 200;

/**
 * When a worker says that it is alive. The interval is the configured one until a lease asks for a shorter one: three
 * heartbeats in a lease, so that one that is lost does not cost the worker its jobs.
 */
export class Heartbeats {
  readonly #beat: (everyMs: number) => Promise<void>;
  #everyMs: number;
  #dueAt = 0;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #isStopped = false;

  /** `beat` sends one heartbeat and never rejects. */
  constructor(everyMs: number, beat: (everyMs: number) => Promise<void>) {
    this.#everyMs = everyMs;
    this.#beat = beat;
  }

  start(): void {
    this.#plan();
  }

  /** Takes note of a job's lease, by the instant at which it ends (RFC 3339). */
  mindLease(expiresAt: string | undefined): void {
    if (expiresAt === undefined) return;
    const thirdMs = Math.max(everyMsMin, (Date.parse(expiresAt) - Date.now()) / 3);
    if (!(thirdMs < this.#everyMs)) return;
    this.#everyMs = thirdMs;
    if (this.#dueAt > Date.now() + thirdMs) this.#plan();
  }

  stop(): void {
    this.#isStopped = true;
    clearTimeout(this.#timer);
  }

  #plan(): void {
    clearTimeout(this.#timer);
    this.#dueAt = Date.now() + this.#everyMs;
    this.#timer = setTimeout(() => void this.#run(), this.#everyMs);
  }

  async #run(): Promise<void> {
    await this.#beat(this.#everyMs);
    if (!this.#isStopped) this.#plan();
  }
}
