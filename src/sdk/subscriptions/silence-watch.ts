export interface SilenceWatchOptions {
  silenceMs: number;
  /** Asks the server for a sign of life. */
  probe: () => void;
  onSilent: () => void;
}

/** Finds dead sockets: after `silenceMs` without a frame it asks, and after as long again it gives up. */
export class SilenceWatch {
  readonly #options: SilenceWatchOptions;
  readonly #timer: ReturnType<typeof setInterval>;
  /** Undefined until the socket is open. */
  #heardAt: number | undefined;
  #probedAt = 0;

  constructor(options: SilenceWatchOptions) {
    this.#options = options;
    this.#timer = setInterval(() => this.#look(), options.silenceMs / 4);
    (this.#timer as { unref?: () => void }).unref?.();
  }

  /** The socket has opened, or a frame has come. */
  heard(): void {
    this.#heardAt = Date.now();
  }

  stop(): void {
    clearInterval(this.#timer);
  }

  #look(): void {
    const { silenceMs, probe, onSilent } = this.#options;
    const now = Date.now();
    if (this.#heardAt === undefined || now - this.#heardAt < silenceMs) return;
    if (this.#probedAt <= this.#heardAt) {
      this.#probedAt = now;
      probe();
    } else if (now - this.#probedAt >= silenceMs) onSilent();
  }
}
