/** Preloaded: the clock of this process is wrong by `WRONG_CLOCK_MS`. */
const offMs = Number(process.env.WRONG_CLOCK_MS ?? 0);
const rightDate = Date;
globalThis.Date = class extends rightDate {
  constructor(...given: [] | [number | string | Date]) {
    if (given.length === 0) super(rightDate.now() + offMs);
    else super(given[0]);
  }
  static override now = () => rightDate.now() + offMs;
} as DateConstructor;
