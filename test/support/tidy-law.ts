import type { Rule } from "./tidy-rules.ts";

/** A rule that the house keeps, with made-up sources to try it. */
export interface Law {
  name: string;
  rule: Rule;
  /** The sources under `bad` break it together, not each alone. */
  together?: true;
  /** As `path | text`, with the line of the breach that must be found. */
  bad: [path: string, text: string, line: number][];
  good: [path: string, text: string][];
}
