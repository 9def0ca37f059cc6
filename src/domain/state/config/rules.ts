import { invalid } from "../../../kit/fault.ts";
import { configNameCharsMax } from "./limits.ts";

const named = /^[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*$/;

/** A name stands in a topic, `system.config.{name}.updated`, and so may have dots as a topic may. */
export function requireConfigName(name: string): void {
  if (name.length > configNameCharsMax || !named.test(name))
    throw invalid(
      "name",
      `must be 1 to ${configNameCharsMax} characters of A-Z, a-z, 0-9, _, - and single dots`,
    );
}

/** The fields of the second over those of the first; fields inside them are not merged. */
export const merged = (
  before: Record<string, unknown>,
  fields: Record<string, unknown>,
): Record<string, unknown> => ({ ...before, ...fields });
