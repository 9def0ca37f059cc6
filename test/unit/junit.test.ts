import { expect, test } from "bun:test";
import { countJunit, type ProcessRun, secondsOf, verdict } from "../support/junit.ts";

const xml = `<?xml version="1.0" encoding="UTF-8"?>
<testsuites name="bun test" tests="6" assertions="1" failures="2" skipped="2" time="0.02">
  <testsuite name="test/a.test.ts" file="test/a.test.ts" tests="4" failures="1" skipped="2">
    <testsuite name="grp &amp; &lt;x&gt;" file="test/a.test.ts" line="2">
      <testcase name="ok" classname="grp &amp; &lt;x&gt;" time="0.00001" file="test/a.test.ts" line="2" assertions="0" />
      <testcase name="bad &gt; &quot;q&quot;" classname="grp" file="test/a.test.ts" line="2" assertions="1">
        <failure type="AssertionError" message="&lt;skipped&#10;/&gt;">at test/a.test.ts:2:81</failure>
      </testcase>
    </testsuite>
    <testcase name="s /> t" classname="" time="0" file="test/a.test.ts" line="3" assertions="0">
      <skipped />
    </testcase>
    <testcase name="t" classname="" time="0" file="test/a.test.ts" line="3" assertions="0">
      <skipped message="later" />
    </testcase>
  </testsuite>
  <testsuite name="test/c.test.ts" file="test/c.test.ts" tests="2" failures="1">
    <testcase name="x" classname="" time="0.00001" file="test/c&amp;d.test.ts" line="1" assertions="0" />
    <testcase name="(unnamed)" classname="" time="0.000082" file="test/c&amp;d.test.ts" assertions="0">
      <error type="Error" message="after">Error: after</error>
    </testcase>
  </testsuite>
</testsuites>`;
const fine = `<testcase name="x" file="test/a.test.ts" /><testcase name="y" file="test/a.test.ts"></testcase>`;
const one = (changes: Partial<ProcessRun> = {}): ProcessRun => ({
  ...{ about: "house-1", files: ["test/a.test.ts"], exit: 0, xml: fine },
  ...changes,
});
const judge = (runs: ProcessRun[], checkExit = 0) => verdict({ runs, checkExit, wrong: [] });

test("cases are counted one by one, whatever stands in their names and messages", () => {
  expect(countJunit(xml)).toEqual({
    passed: 2,
    failures: [
      {
        title: 'test/a.test.ts > grp > bad > "q"',
        reason: "<skipped\n/>\nat test/a.test.ts:2:81",
      },
      { title: "test/c&d.test.ts > (unnamed)", reason: "after\nError: after" },
    ],
    skipped: 2,
    files: new Set(["test/a.test.ts", "test/c&d.test.ts"]),
  });
});

test("the time of a file is that of all in it, hooks too", () => {
  const timed = `<testsuite name="test/a.test.ts" file="test/a.test.ts" time="2.5">
    <testsuite name="a time=&quot;9&quot;" file="test/a.test.ts" line="3" time="1"></testsuite></testsuite>`;
  expect([...secondsOf(timed)]).toEqual([["test/a.test.ts", 2.5]]);
});

test("a run in which all is well has no failure", () => {
  expect(judge([one()])).toEqual({ passed: 2, failed: 0, skipped: 0, failures: [], beside: [] });
});

test("the tests of all processes are counted together", () => {
  const other = one({
    about: "cluster-1",
    files: ["test/b.test.ts"],
    xml: fine.replaceAll("a.test", "b.test"),
  });
  expect(judge([one(), other])).toEqual({ passed: 4, failed: 0, skipped: 0, failures: [], beside: [] });
});

test("a test that two processes ran is a failure", () => {
  const again = one({ about: "postgres-1", xml: `<testcase name="y" file="test/a.test.ts" />` });
  expect(judge([one(), again])).toMatchObject({
    failed: 1,
    beside: ["test/a.test.ts > y ran in house-1 and in postgres-1"],
  });
});

test("a file that is dealt to nobody is a failure", () => {
  const wrong = ["test/c.test.ts is in no lane"];
  expect(verdict({ runs: [one()], checkExit: 0, wrong })).toMatchObject({ failed: 1, beside: wrong });
});

test("skipped tests are neither passed nor failed, and alone they are a failure", () => {
  const skipped = `<testcase name="x" file="test/a.test.ts"><skipped /></testcase>`;
  expect(judge([one({ xml: fine + skipped })])).toMatchObject({ passed: 2, failed: 0, skipped: 1 });
  expect(judge([one({ xml: skipped })])).toMatchObject({ passed: 0, failed: 1, beside: ["no test ran"] });
});

test("no test ran is a failure", () => {
  expect(judge([]).failed).toBe(1);
});

test("a failed check counts as one failure", () => {
  expect(judge([one()], 1)).toMatchObject({ passed: 2, failed: 1 });
});

test("a file that broke before its first test is a failure of its own", () => {
  const result = judge([one({ files: ["test/a.test.ts", "test/b.test.ts"], exit: 1 })]);
  const beside = ["test/b.test.ts reported no test in house-1"];
  expect(result).toMatchObject({ passed: 2, failed: 1, beside });
});

test("a run that ends badly without a failed test is a failure", () => {
  expect(judge([one({ exit: 139 })])).toMatchObject({ passed: 2, failed: 1 });
  const failing = one({ exit: 1, xml, files: ["test/a.test.ts", "test/c&d.test.ts"] });
  expect(judge([failing])).toMatchObject({ passed: 2, failed: 2, beside: [] });
  // The failed test of one process says nothing about how another ended.
  expect(
    judge([
      failing,
      one({ about: "fault-1", exit: 139, xml: fine.replaceAll("a.test", "e.test"), files: [] }),
    ]),
  ).toMatchObject({ failed: 3 });
});
