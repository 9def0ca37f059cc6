import { invalid } from "./fault.ts";
import { eventNameBytesMax } from "./limits.ts";

/** Throws the fault that names the field unless the name may be emitted. */
export function requireEventName(field: string, name: string): void {
  if (name.length === 0) throw invalid(field, "must not be empty");
  if (Buffer.byteLength(name) > eventNameBytesMax) throw invalid(field, `at most ${eventNameBytesMax} bytes`);
  if (!name.isWellFormed()) throw invalid(field, "must be well-formed Unicode");
  if (/[*>]/.test(name)) throw invalid(field, "must not contain * or >");
  if (/[\s\p{Cc}]/u.test(name)) throw invalid(field, "must not contain whitespace or control characters");
  if (name.split(".").includes("")) throw invalid(field, "must not contain an empty segment between dots");
}

/** Throws for a free text that no database keeps as it is: half of a letter, or a zero byte. */
export function requireStorable(field: string, text: string | undefined): void {
  if (text === undefined || (text.isWellFormed() && !text.includes("\0"))) return;
  throw invalid(field, "must be well-formed Unicode without zero bytes");
}

/** The event of a run that failed for good: the server alone emits it, where an environment asks for it. */
export const runFailedEvent = "svc.run.failed";

/**
 * Subjects are dot-separated tokens; a pattern may use `*` for exactly one token and a last `>` for one or
 * more.
 */
export function matchesPattern(pattern: string, subject: string): boolean {
  if (pattern === subject) return true;
  const wanted = pattern.split(".");
  const given = subject.split(".");
  for (const [at, token] of wanted.entries()) {
    if (token === ">") return at === wanted.length - 1 && given.length > at;
    if (at >= given.length) return false;
    if (token !== "*" && token !== given[at]) return false;
  }
  return wanted.length === given.length;
}

export const deploymentCharsMax = 128;

/** Which build of its program somebody is, by that one's own choice. */
export function requireDeployment(deployment: string): string {
  if (deployment.length > deploymentCharsMax || !/^[A-Za-z0-9][A-Za-z0-9._:/@+-]*$/.test(deployment))
    throw invalid(
      "deployment",
      `must be 1 to ${deploymentCharsMax} letters, digits and ._:/@+-, the first a letter or digit`,
    );
  return deployment;
}
