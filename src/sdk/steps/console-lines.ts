import { AsyncLocalStorage } from "node:async_hooks";
import { format } from "node:util";
import { isOwnLine } from "../wire/log.ts";
import type { LineLevel } from "../wire/run-log-types.ts";

type WriteLine = (level: LineLevel, text: string) => void;

const writers = new AsyncLocalStorage<WriteLine>();
const levels = { debug: "debug", log: "info", info: "info", warn: "warn", error: "error" } as const;
let isOn = false;

/** From here on what a handler writes to `console` is kept with its run, too. */
function capture(): void {
  if (isOn) return;
  isOn = true;
  for (const [name, level] of Object.entries(levels) as [keyof typeof levels, LineLevel][]) {
    const plain = console[name].bind(console);
    const captured = (...given: unknown[]) => {
      plain(...given);
      const write = isOwnLine() ? undefined : writers.getStore();
      try {
        write?.(level, format(...given));
      } catch {} // What cannot be written fails no run.
    };
    try {
      console[name] = captured;
    } catch {} // It is frozen.
  }
}

/** Runs work whose lines on the console go to `write`. */
export function capturing<Result>(write: WriteLine, work: () => Result): Result {
  capture();
  return writers.run(write, work);
}
