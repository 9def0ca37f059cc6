import { shownText } from "../kit/shown-text.ts";
import type { Io } from "./io.ts";
import { ownCodes } from "./show.ts";

/** Our colours stay; what others wrote was shown as text before it was coloured. */
const styled = (text: string): string =>
  text
    .split(ownCodes)
    .map((piece, at) => (at % 2 === 0 ? shownText(piece) : piece))
    .join("");

/** What every command writes with: a terminal obeys nothing in it. Piped or stored bytes stay as they are. */
export function shownIo(io: Io): Io {
  const decoder = new TextDecoder();
  const { isTerminal, input } = io;
  const out: Io["out"] = (text) => {
    if (typeof text === "string") return io.out(isTerminal ? styled(text) : shownText(text));
    return io.out(isTerminal ? shownText(decoder.decode(text, { stream: true })) : text);
  };
  return {
    ...{ environment: io.environment, folder: io.folder, home: io.home, clock: io.clock },
    ...{ isTerminal, columns: io.columns, out },
    note: (text) => io.note(shownText(text)),
    status: (text) => io.status(shownText(text)),
    input: { ...input, ask: (question, options) => input.ask(shownText(question), options) },
    // From this call on the process handles ^C.
    get signal() {
      return io.signal;
    },
  };
}
