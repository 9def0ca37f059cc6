import { Fault, invalid } from "../../kit/fault.ts";
import { environmentNameBytesMax } from "../../kit/limits.ts";

/** What every installation has from its first boot on (spec.md 'Bootstrap', 'Environment and project'). */
export const defaultOrgId = "org_default";
export const defaultProjectId = "proj_default";
export const defaultEnvironmentId = "env_default";
export const defaultEnvironmentName = "default";

export const environmentColorDefault = "#64748b";

/** What a selector is: an id by its prefix, which no name can have. */
export const isEnvironmentId = (selector: string): boolean => selector.startsWith("env_");

export const isEnvironmentName = (text: string): boolean =>
  text.length <= environmentNameBytesMax && /^[a-z0-9-]+$/.test(text);

export function requireEnvironmentName(name: string): void {
  if (name === "") throw invalid("name", "must not be empty");
  if (!isEnvironmentName(name)) {
    throw invalid("name", `must be at most ${environmentNameBytesMax} of a-z, 0-9 and -`);
  }
}

export const unknownEnvironment = (): Fault => new Fault("invalid_argument", "unknown environment");

export const noEnvironmentScope = (): Fault =>
  new Fault("permission_denied", "request has no environment scope");
