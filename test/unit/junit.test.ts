import { expect, test } from "bun:test";
import { countJunit, verdict } from "../support/junit.ts";

const xml = `<?xml version="1.0" encoding="UTF-8"?>
<testsuites name="bun test" tests="6" assertions="1" failures="2" skipped="2" time="0.02">
  <testsuite name="test/a.test.ts" file="test/a.test.ts" tests="4" failures="1" skipped="2">
    <testsuite name="grp &amp; &lt;x&gt;" file="test/a.test.ts" line="2">
      <testcase name="ok" classname="grp &amp; &lt;x&gt;" time="0.00001" file="test/a.test.ts" line="2" assertions="0" />
      <testcase name="bad &gt; &quot;q&quot;" classname="grp" file="test/a.test.ts" line="2" assertions="1">
        <failure type="AssertionError" message="&lt;skipped /&gt;">at test/a.test.ts:2:81</failure>
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
const testFiles = ["test/a.test.ts"];

test("cases are counted one by one, whatever stands in their names and messages", () => {
  expect(countJunit(xml)).toEqual({
    passed: 2,
    failed: 2,
    skipped: 2,
    files: new Set(["test/a.test.ts", "test/c&d.test.ts"]),
  });
});

test("a run in which all is well has no failure", () => {
  const result = verdict({ xml: fine, testFiles, testsExit: 0, checkExit: 0 });
  expect(result).toEqual({ passed: 2, failed: 0, skipped: 0, beside: [] });
});

test("skipped tests are neither passed nor failed, and alone they are a failure", () => {
  const skipped = `<testcase name="x" file="test/a.test.ts"><skipped /></testcase>`;
  expect(verdict({ xml: fine + skipped, testFiles, testsExit: 0, checkExit: 0 })).toMatchObject({
    passed: 2,
    failed: 0,
    skipped: 1,
  });
  expect(verdict({ xml: skipped, testFiles, testsExit: 0, checkExit: 0 })).toMatchObject({
    passed: 0,
    failed: 1,
    beside: ["no test ran"],
  });
});

test("no test ran is a failure", () => {
  expect(verdict({ xml: "", testFiles: [], testsExit: 0, checkExit: 0 }).failed).toBe(1);
});

test("a failed check counts as one failure", () => {
  expect(verdict({ xml: fine, testFiles, testsExit: 0, checkExit: 1 })).toMatchObject({
    passed: 2,
    failed: 1,
  });
});

test("a file that broke before its first test is a failure of its own", () => {
  const result = verdict({
    xml: fine,
    testFiles: [...testFiles, "test/b.test.ts"],
    testsExit: 1,
    checkExit: 0,
  });
  expect(result).toMatchObject({ passed: 2, failed: 1, beside: ["test/b.test.ts reported no test"] });
});

test("a run that ends badly without a failed test is a failure", () => {
  expect(verdict({ xml: fine, testFiles, testsExit: 139, checkExit: 0 })).toMatchObject({
    passed: 2,
    failed: 1,
  });
  expect(verdict({ xml, testFiles, testsExit: 1, checkExit: 0 })).toMatchObject({
    passed: 2,
    failed: 2,
    beside: [],
  });
});
