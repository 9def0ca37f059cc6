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

export interface Outcome {
  /** What the junit file says; empty when there is none. */
  xml: string;
  testFiles: string[];
  testsExit: number;
  checkExit: number;
}

export interface Verdict {
  passed: number;
  failed: number;
  skipped: number;
  /** Each failure that no test case shows: a sentence for a person. */
  beside: string[];
}

/** What a run comes to. Skipped tests are neither passed nor failed; silence is a failure. */
export function verdict({ xml, testFiles, testsExit, checkExit }: Outcome): Verdict {
  const { passed, failed, skipped, files } = countJunit(xml);
  const beside: string[] = [];
  if (checkExit !== 0) beside.push("the check of format and types failed");
  for (const file of testFiles) if (!files.has(file)) beside.push(`${file} reported no test`);
  if (passed + failed === 0) beside.push("no test ran");
  if (testsExit !== 0 && failed === 0 && beside.length === 0)
    beside.push(`the test run ended with ${testsExit}`);
  return { passed, failed: failed + beside.length, skipped, beside };
}
