import { expect, test } from "bun:test";
import { hotFunctions } from "../bench/profile.ts";

test("functions of a profile come by what they take alone; one that calls itself counts once", () => {
  const frame = (functionName: string) => ({ functionName, url: "", lineNumber: 0 });
  const profile = {
    nodes: [
      { id: 1, callFrame: frame("(root)"), children: [2] },
      { id: 2, callFrame: frame("outer"), children: [3] },
      { id: 3, callFrame: frame("inner"), children: [4] },
      { id: 4, callFrame: frame("inner") },
    ],
    samples: [2, 3, 4, 4],
    timeDeltas: [10, 20, 30, 40],
  };
  expect(hotFunctions(profile)).toEqual([
    { name: "inner", own: 0.9, whole: 0.9 },
    { name: "outer", own: 0.1, whole: 1 },
    { name: "(root)", own: 0, whole: 1 },
  ]);
});
