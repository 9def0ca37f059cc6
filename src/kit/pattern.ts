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
