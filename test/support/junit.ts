export interface Counts {
  passed: number;
  failed: number;
  skipped: number;
  /** The test files that reported at least one test. */
  files: Set<string>;
}

const plainText = (text: string) =>
  text
    .replaceAll("&quot;", '"')
    .replaceAll("&apos;", "'")
    .replaceAll("&lt;", "<")
    .replaceAll("&gt;", ">")
    .replaceAll("&amp;", "&");

/** Counts the cases of a JUnit file one by one: its own totals know nothing of a file that broke before its first test. */
export function countJunit(xml: string): Counts {
  const counts: Counts = { passed: 0, failed: 0, skipped: 0, files: new Set() };
  for (const [, attributes = "", , body = ""] of xml.matchAll(
    /<testcase\b((?:[^>"']|"[^"]*"|'[^']*')*?)(\/>|>([\s\S]*?)<\/testcase>)/g,
  )) {
    const file = attributes.match(/\bfile="([^"]*)"/)?.[1];
    if (file !== undefined) counts.files.add(plainText(file));
    if (/<(failure|error)\b/.test(body)) counts.failed++;
    else if (/<skipped\b/.test(body)) counts.skipped++;
    else counts.passed++;
  }
  return counts;
}

const attributeOf = (attributes: string, name: string): string =>
  plainText(attributes.match(new RegExp(`\\b${name}="([^"]*)"`))?.[1] ?? "");

/** How long each file took, in seconds, with its hooks. */
export function secondsOf(xml: string): Map<string, number> {
  const seconds = new Map<string, number>();
  for (const [, attributes = ""] of xml.matchAll(/<testsuite\b((?:[^>"']|"[^"]*"|'[^']*')*?)>/g)) {
    // The groups within a file say which line they begin in.
    if (!/\bline="/.test(attributes))
      seconds.set(attributeOf(attributes, "file"), Number(attributeOf(attributes, "time")));
  }
  return seconds;
}

/** What tells a test from every other. */
function casesOf(xml: string): Set<string> {
  const cases = new Set<string>();
  for (const [, attributes = ""] of xml.matchAll(/<testcase\b((?:[^>"']|"[^"]*"|'[^']*')*?)\/?>/g)) {
    const parts = ["file", "classname", "name"].map((name) => attributeOf(attributes, name));
    cases.add(parts.filter((part) => part !== "").join(" > "));
  }
  return cases;
}

/** One process of a run. */
export interface ProcessRun {
  about: string;
  files: readonly string[];
  exit: number;
  /** What its junit file says; empty when there is none. */
  xml: string;
}

export interface Outcome {
  runs: readonly ProcessRun[];
  checkExit: number;
  /** Sentences of who dealt the files. */
  wrong: readonly string[];
}

export interface Verdict {
  passed: number;
  failed: number;
  skipped: number;
  /** Each failure that no test case shows: a sentence for a person. */
  beside: string[];
}

/** What a run comes to. Skipped tests are neither passed nor failed; silence is a failure, and so is a test that ran twice. */
export function verdict({ runs, checkExit, wrong }: Outcome): Verdict {
  const sum: Verdict = { passed: 0, failed: 0, skipped: 0, beside: [...wrong] };
  if (checkExit !== 0) sum.beside.push("the check of format and types failed");
  const seenIn = new Map<string, string>();
  for (const { about, files, exit, xml } of runs) {
    const counts = countJunit(xml);
    sum.passed += counts.passed;
    sum.failed += counts.failed;
    sum.skipped += counts.skipped;
    const silent = files.filter((file) => !counts.files.has(file));
    sum.beside.push(...silent.map((file) => `${file} reported no test in ${about}`));
    if (exit !== 0 && counts.failed === 0 && silent.length === 0)
      sum.beside.push(`${about} ended with ${exit}`);
    for (const name of casesOf(xml)) {
      const before = seenIn.get(name);
      if (before !== undefined) sum.beside.push(`${name} ran in ${before} and in ${about}`);
      seenIn.set(name, about);
    }
  }
  if (sum.passed + sum.failed === 0) sum.beside.push("no test ran");
  return { ...sum, failed: sum.failed + sum.beside.length };
}
