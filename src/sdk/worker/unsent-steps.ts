import { exchangeCharactersMax, progressStepsMax, type ReportedStep } from "../wire/wire.ts";

/** Finished steps of a job that the server does not have, in their order, after the steps that it has. */
export class UnsentSteps {
  #storedCount: number;
  readonly #unsent: { text: string; onStored: (() => void) | undefined }[] = [];

  constructor(storedCount: number) {
    this.#storedCount = storedCount;
  }

  get count(): number {
    return this.#unsent.length;
  }

  /** `text` is the JSON of the step. `onStored` is called when the server has it, or when it never will. */
  add(text: string, onStored?: () => void): void {
    this.#unsent.push({ text, onStored });
  }

  /** How many of them fit one report; a large step goes alone. */
  fitting(): number {
    let characters = 0;
    let count = 0;
    for (const { text } of this.#unsent) {
      characters += text.length;
      if (count === progressStepsMax || (count > 0 && characters > exchangeCharactersMax)) break;
      count++;
    }
    return count;
  }

  /** Whether all fit a report of so many characters: a step, and a result, may be as large as a request. */
  fitBeside(characters: number): boolean {
    if (this.fitting() < this.#unsent.length) return false;
    const all = this.#unsent.reduce((sum, { text }) => sum + text.length, characters);
    return this.#unsent.length === 0 || all <= exchangeCharactersMax;
  }

  /** The first `count` of them as fields of a report. */
  fields(count: number): string {
    const texts = this.#unsent.slice(0, count).map(({ text }) => text);
    return `"step_offset":${this.#storedCount},"steps":[${texts.join(",")}]`;
  }

  /** What the server says of `steps[2]`, said of the name of that step. */
  named(said: string): string {
    return said.replace(/\bsteps\[(\d+)\]/, (place, at) => {
      const text = this.#unsent[Number(at)]?.text;
      return text === undefined ? place : `step ${(JSON.parse(text) as ReportedStep).name}`;
    });
  }

  /** The server has the first `count` of them. */
  stored(count: number): void {
    this.#storedCount += count;
    for (const { onStored } of this.#unsent.splice(0, count)) onStored?.();
  }

  /** What waits for one of them continues; they are still to be sent. */
  release(): void {
    for (const step of this.#unsent) {
      step.onStored?.();
      step.onStored = undefined;
    }
  }

  /** None of them will be sent. */
  drop(): void {
    for (const { onStored } of this.#unsent.splice(0)) onStored?.();
  }
}
