const textOf = /^(\d{1,16})\.(\d{1,16})$/;

/**
 * The last place in the environment's log of events that a connection knows of. The server's reads must have
 * reached it before they show all that was written over the connection.
 */
export class LastSequence {
  #text: string | undefined;
  #epoch = 0;
  #position = 0;

  /** As the server writes it; undefined before the first write. */
  get text(): string | undefined {
    return this.#text;
  }

  /** Keeps the later of two: a later epoch beats any position. Answers whether it is a place in this log. */
  note(text: string): boolean {
    const [, epochText, positionText] = textOf.exec(text) ?? [];
    if (epochText === undefined) return false;
    const [epoch, position] = [Number(epochText), Number(positionText)];
    if (epoch < this.#epoch || (epoch === this.#epoch && position < this.#position)) return true;
    this.#text = text;
    this.#epoch = epoch;
    this.#position = position;
    return true;
  }

  /** The server's log was restored since: what was written there may be lost, and is waited for no more. */
  forget(text: string): void {
    if (text !== this.#text) return;
    this.#text = undefined;
    this.#epoch = 0;
    this.#position = 0;
  }
}
