import { expect, test } from "bun:test";
import { durationMs } from "../../src/sdk/wire/duration.ts";
import { reportedError } from "../../src/sdk/wire/errors.ts";
import { foldedStack } from "../../src/sdk/wire/stack.ts";

function thrownBy(work: () => unknown): unknown {
  try {
    work();
  } catch (error) {
    return error;
  }
  return undefined;
}

test("frames of the SDK are counted behind the user's", () => {
  const { stack = "" } = reportedError(
    thrownBy(() => durationMs("soon")),
    foldedStack,
  );
  const lines = stack.split("\n");
  expect(lines.find((line) => /^\s*at /.test(line))).toContain("sdk-stack.test.ts");
  expect(stack).not.toContain("src/sdk/wire");
  expect(lines.at(-1)).toBe("    … 1 of svc");
});

test("a stack without them stays as it is, as do frames that only resemble them", () => {
  const root = import.meta.path.replace(/test\/unit.*/, "");
  for (const stack of [
    "",
    "Error: x\n    at charge (/app/till.ts:41:11)",
    `Error: x\n    at charge (${root}src/sdk-of-mine/till.ts:41:11)`,
    `Error: ${root}src/sdk/x.ts is gone`,
    `Error: x\n${"at ".repeat(400_000)}`,
  ])
    expect(foldedStack(stack)).toBe(stack);
  expect(
    foldedStack(
      `Error: x\n    at async ${root}src/sdk/a.ts:1:2\n    at own (/app/a.ts:1:2)\n    at b (${root}src/sdk/b/c.ts:1:2)`,
    ),
  ).toBe("Error: x\n    at own (/app/a.ts:1:2)\n    … 2 of svc");
});
