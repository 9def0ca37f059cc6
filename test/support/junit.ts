/** A test that failed. */
export interface Failure {
  title: string;
  reason: string;
}

export interface Counts {
  passed: number;
  failures: Failure[];
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
    .replaceAll(/&#(\d+);/g, (_, code) => String.fromCodePoint(Number(code)))
    .replaceAll("&amp;", "&");

const attributeOf = (attributes: string, name: string): string =>
  plainText(attributes.match(new RegExp(`\\b${name}="([^"]*)"`))?.[1] ?? "");

/** What tells a test from every other. */
const titleOf = (attributes: string): string =>
  ["file", "classname", "name"]
    .map((name) => attributeOf(attributes, name))
    .filter((part) => part !== "")
    .join(" > ");

const reasonShown = 600;

/** Why a case failed, for a person: its message, or what it printed instead. */
function reasonOf(body: string): string {
  const [, attributes = "", text = ""] =
    body.match(/<(?:failure|error)\b((?:[^>"']|"[^"]*"|'[^']*')*)>([^<]*)/) ?? [];
  return [attributeOf(attributes, "message"), plainText(text)]
    .map((part) => part.trim())
    .filter((part) => part !== "")
    .join("\n")
    .slice(0, reasonShown);
}

/** Counts the cases of a JUnit file one by one: its own totals know nothing of a file that broke before its first test. */
export function countJunit(xml: string): Counts {
  const counts: Counts = { passed: 0, failures: [], skipped: 0, files: new Set() };
  for (const [, attributes = "", , body = ""] of xml.matchAll(
    /<testcase\b((?:[^>"']|"[^"]*"|'[^']*')*?)(\/>|>([\s\S]*?)<\/testcase>)/g,
  )) {
    const file = attributeOf(attributes, "file");
    if (file !== "") counts.files.add(file);
    if (/<(failure|error)\b/.test(body))
      counts.failures.push({ title: titleOf(attributes), reason: reasonOf(body) });
    else if (/<skipped\b/.test(body)) counts.skipped++;
    else counts.passed++;
  }
  return counts;
}

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

function titlesOf(xml: string): Set<string> {
  return new Set(
    [...xml.matchAll(/<testcase\b((?:[^>"']|"[^"]*"|'[^']*')*?)\/?>/g)].map(([, attributes = ""]) =>
      titleOf(attributes),
    ),
  );
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
  /** The tests that failed, in the order of the processes. */
  failures: Failure[];
  /** Each failure that no test case shows: a sentence for a person. */
  beside: string[];
}

/** What a run comes to. Skipped tests are neither passed nor failed; silence is a failure, and so is a test that ran twice. */
export function verdict({ runs, checkExit, wrong }: Outcome): Verdict {
  const sum: Verdict = { passed: 0, failed: 0, skipped: 0, failures: [], beside: [...wrong] };
  if (checkExit !== 0) sum.beside.push("the check of format and types failed");
  const seenIn = new Map<string, string>();
  for (const { about, files, exit, xml } of runs) {
    const counts = countJunit(xml);
    sum.passed += counts.passed;
    sum.failures.push(...counts.failures);
    sum.skipped += counts.skipped;
    const silent = files.filter((file) => !counts.files.has(file));
    sum.beside.push(...silent.map((file) => `${file} reported no test in ${about}`));
    if (exit !== 0 && counts.failures.length === 0 && silent.length === 0)
      sum.beside.push(`${about} ended with ${exit}`);
    for (const name of titlesOf(xml)) {
      const before = seenIn.get(name);
      if (before !== undefined) sum.beside.push(`${name} ran in ${before} and in ${about}`);
      seenIn.set(name, about);
    }
  }
  if (sum.passed + sum.failures.length === 0) sum.beside.push("no test ran");
  return { ...sum, failed: sum.failures.length + sum.beside.length };
}
