import type { OutputSource } from "../steps/step-host.ts";

interface Written {
  stepId: string;
  /** The try of the step, or the attempt of the handler. */
  source: string;
  chunk: unknown;
}

/** What a test run wrote to its outputs, by the server's rules. */
export class TestOutputs {
  readonly #written = new Map<string, Written[]>();

  /** Takes the chunks of one execution. Outside of steps a handler that is entered again writes the same. */
  of(attempt: number, execution: number) {
    const counts = new Map<string, number>();
    return (name: string, { stepId, entry }: OutputSource, chunk: unknown): void => {
      const source = stepId === "" ? `attempt ${attempt}` : `${execution}.${entry} ${stepId}`;
      const all = this.#written.get(name) ?? [];
      const place = counts.get(`${source}\n${name}`) ?? 0;
      counts.set(`${source}\n${name}`, place + 1);
      const own = all.filter((one) => one.source === source);
      if (place < own.length) return;
      const kept = own.length > 0 ? all : all.filter((one) => one.stepId !== stepId);
      this.#written.set(name, [...kept, { stepId, source, chunk }]);
    };
  }

  all(): Record<string, unknown[]> {
    return Object.fromEntries([...this.#written].map(([name, all]) => [name, all.map(({ chunk }) => chunk)]));
  }
}
