import type { Clock } from "../../../../kit/clock.ts";
import type { ProjectionKey } from "../rows.ts";

/** Tells waits, held polls and streams of this node that something of a projection may have changed. */
export type Signals = ReturnType<typeof openSignals>;

export const textOf = ({ environment_id, name }: ProjectionKey) => `${environment_id}\n${name}`;

export function openSignals() {
  const listeners = new Map<string, Set<() => void>>();
  return {
    /** Until the function that it answers is called. */
    listen(key: ProjectionKey, onSignal: () => void): () => void {
      const text = textOf(key);
      const all = listeners.get(text) ?? new Set();
      listeners.set(text, all.add(onSignal));
      return () => {
        all.delete(onSignal);
        if (all.size === 0 && listeners.get(text) === all) listeners.delete(text);
      };
    },
    signal(key: ProjectionKey) {
      for (const listener of [...(listeners.get(textOf(key)) ?? [])]) listener();
    },
  };
}

/** A pause that ends early when it is woken; a wake while nobody rests ends the next one at once. */
export class Rest {
  #isWoken = false;
  #wake = () => {};

  wake(): void {
    this.#isWoken = true;
    this.#wake();
  }

  async for(ms: number, clock: Pick<Clock, "after">): Promise<void> {
    if (!this.#isWoken)
      await new Promise<void>((resolve) => {
        const cancel = clock.after(ms, resolve);
        this.#wake = () => {
          cancel();
          resolve();
        };
      });
    this.#wake = () => {};
    this.#isWoken = false;
  }
}
