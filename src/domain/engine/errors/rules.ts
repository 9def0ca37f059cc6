import { hash } from "node:crypto";
import { firstFrame, type Stacked } from "../../../kit/error-frame.ts";
import {
  errorCodeCharsMax,
  errorFrameCharsMax,
  errorMessageCharsMax,
  errorMessageReadMax,
  errorStackReadMax,
} from "./limits.ts";

export { errorGroupsMax } from "./limits.ts";

/** What a run failed with. */
interface FailedWith extends Stacked {
  message: string;
  code?: string;
}

/** Failures of a function that look alike. */
export interface NewErrorGroup {
  id: string;
  functionId: string;
  code: string;
  /** The message without numbers, ids and quoted values. */
  message: string;
  /** The first frame of the stack, or of what led to the error; empty where there is none. */
  frame: string;
}

/** What tells two failures of one kind apart. Each pattern reads the text once. */
const values: readonly (readonly [RegExp, string])[] = [
  [/"[^"]{0,400}"|(?<!\w)'[^']{0,400}'(?!\w)|`[^`]{0,400}`/g, '"…"'],
  [/\b[a-z][a-z0-9]{0,15}_(?=[A-Za-z-]{0,40}[0-9])[A-Za-z0-9-]{8,}/g, "#"],
  [/\b[0-9a-fA-F]{8}-[0-9a-fA-F-]{10,40}/g, "#"],
  [/\b(?=[0-9a-fA-F]{0,40}[0-9])[0-9a-fA-F]{8,}\b/g, "#"],
  [/\d+(?:[.,:]\d+)*/g, "#"],
];

const plain = (text: string): string => text.toWellFormed().replace(/[\p{Cc}\s]+/gu, " ");

function withoutValues(text: string): string {
  let rest = text;
  for (const [pattern, mark] of values) rest = rest.replace(pattern, mark);
  return rest.trim();
}

/** `at charge (/srv/app/dist/orders.js:17:9)` reads `charge (orders.js)`: lines move with each deploy. */
function frameOf(error: FailedWith): string {
  const place = plain(firstFrame(error, errorStackReadMax)).replace(/(?::\d+){1,2}(?=\)?$)/, "");
  return withoutValues(place.replace(/[^\s(]*[/\\]/g, "")).slice(0, errorFrameCharsMax);
}

const idOf = (parts: readonly string[]): string =>
  `err_${hash("sha256", JSON.stringify(parts), "hex").slice(0, 24)}`;

export function groupOf(functionId: string, error: FailedWith): NewErrorGroup {
  const code = plain(error.code ?? "").slice(0, errorCodeCharsMax);
  const message = withoutValues(plain(error.message.slice(0, errorMessageReadMax))).slice(
    0,
    errorMessageCharsMax,
  );
  const frame = frameOf(error);
  return { id: idOf([functionId, code, message, frame]), functionId, code, message, frame };
}

/** Counts the failures of a function that has as many groups as it may have. */
export const restOf = (functionId: string): NewErrorGroup => ({
  id: idOf([functionId]),
  functionId,
  code: "",
  message: "further errors",
  frame: "",
});
