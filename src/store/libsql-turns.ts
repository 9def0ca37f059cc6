/** A read that took longer when it last ran waits for its turn. */
const dearMs = 4;
/** Texts that are remembered; the one that was found longest ago is forgotten first. */
const textsMax = 1_000;

const nextTurn = () => new Promise<void>((resolve) => setImmediate(resolve));

/**
 * Reads hold the event loop: of those that take long, one runs a turn of it, so that ten that come at once do not keep
 * everybody else waiting for all of them.
 */
export class ReadTurns {
  readonly #dear = new Set<string>();
  #last = Promise.resolve();

  /** Undefined where the read need not wait. */
  turnOf(text: string): Promise<void> | undefined {
    if (!this.#dear.has(text)) return undefined;
    this.#last = this.#last.then(nextTurn);
    return this.#last;
  }

  took(text: string, ms: number): void {
    this.#dear.delete(text);
    if (ms <= dearMs) return;
    this.#dear.add(text);
    const [oldest] = this.#dear;
    if (this.#dear.size > textsMax) this.#dear.delete(oldest!);
  }
}
