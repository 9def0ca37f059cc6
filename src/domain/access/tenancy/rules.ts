import { ownEnvironment } from "../../../kit/caller.ts";
import { Fault, invalid } from "../../../kit/fault.ts";
import { environmentNameBytesMax } from "./limits.ts";

/** What every installation has from its first boot on. */
export const defaultOrgId = "org_default";
export const defaultProjectId = "proj_default";
export const defaultEnvironmentId = "env_default";
export const defaultEnvironmentName = "default";
export const defaultProjectName = "Default";

export const environmentColorDefault = "#64748b";

/** An id is known by its prefix, which no name can have. */
export const isEnvironmentId = (selector: string): boolean => selector.startsWith("env_");

export const isEnvironmentName = (text: string): boolean =>
  text.length <= environmentNameBytesMax && /^[a-z0-9-]+$/.test(text);

export function requireEnvironmentName(name: string, field = "name"): void {
  if (name === "") throw invalid(field, "must not be empty");
  if (!isEnvironmentName(name)) {
    throw invalid(field, `at most ${environmentNameBytesMax} characters of a-z, 0-9 and -`);
  }
  if (name === ownEnvironment)
    throw invalid(field, `must not be ${ownEnvironment}: it stands for the environment of a key`);
}

export const unknownEnvironment = (): Fault => new Fault("invalid_argument", "unknown environment");

export const noEnvironmentScope = (): Fault =>
  new Fault("permission_denied", "request has no environment scope");

/** `#64748b`, `#fff`, or the name of a color. */
export function requireColor(color: string): void {
  if (!/^(#[0-9a-fA-F]{3,8}|[a-z]{1,32})$/.test(color))
    throw invalid("color", "must be a color such as #64748b, or its name");
}

/** A name as people read it; trimmed. */
export function readLabel(field: string, text: string, charsMax: number): string {
  const label = text.trim();
  if (label === "") throw invalid(field, "must not be empty");
  if (label.length > charsMax) throw invalid(field, `at most ${charsMax} characters`);
  if (/\p{Cc}/u.test(label) || !label.isWellFormed())
    throw invalid(field, "must not contain control characters");
  return label;
}

export function requireTimezone(field: string, name: string): void {
  try {
    new Intl.DateTimeFormat("en", { timeZone: name });
  } catch {
    throw invalid(field, "must be a time zone such as Europe/Berlin");
  }
}
